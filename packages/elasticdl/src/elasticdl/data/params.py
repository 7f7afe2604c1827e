"""Parameters as ElasticDL's flags take them: `--model_params "hidden=64;activation='relu'"`.

    parse_params("--model_params", 'hidden=64; columns=["a", "b"]')      # {"hidden": 64, "columns": ["a", "b"]}

A value is a literal of Python; a bare word is a text. Nothing is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from elasticdl.errors import DataError, InputError

_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_FORM = 'write name=value, several of them with ";" between them, texts with special characters in quotes'


def parse_params(flag: str, text: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters in a flag's text; a mapping is returned as it is. Raise InputError that names the flag."""
    if isinstance(text, Mapping):
        return dict(text)
    found: dict[str, Any] = {}
    for part in filter(str.strip, _parts(flag, text)):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name.isidentifier():
            raise InputError(f"{flag}: {part.strip()!r} is not name=value", _FORM)
        if name in found:
            raise InputError(f"{flag}: {name} is given twice", "give it once")
        found[name] = _value(flag, name, value)
    return found


def texts(name: str, value: object) -> tuple[str, ...] | None:
    """Return a parameter that is a list of texts, or None; raise DataError for anything else."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, str) for each in value):
        raise DataError(f"{name} is {value!r}", f'give a list of texts: {name}=["a", "b"]')
    return tuple(value)


def _parts(flag: str, text: str) -> Iterator[str]:
    """Yield what is between the semicolons that are neither in quotes nor in brackets."""
    start, quote, closing, escaped = 0, "", list[str](), False
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif quote:
            escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _BRACKETS:
            closing.append(_BRACKETS[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif character == ";" and not closing:
            yield text[start:index]
            start = index + 1
    if quote or closing:
        raise InputError(
            f"{flag}: {text!r} ends inside {'quotes' if quote else 'brackets'}", f"add {quote or closing[-1]}"
        )
    yield text[start:]


def _value(flag: str, name: str, text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if not text or text[0] in "'\"([{":
            raise InputError(f"{flag}: the value of {name}, {text!r}, is no literal of Python", _FORM) from None
        return text
