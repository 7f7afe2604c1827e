"""YAML as kubectl reads it: PyYAML and kubectl disagree about which plain words are strings.

    written({"args": ["--lr", "1e-3"]})      # "args:\n- --lr\n- '1e-3'"
    documents("args: [12:30:45, y]")         # [{"args": ["12:30:45", True]}]

PyYAML follows YAML 1.1, kubectl the rules of its own parser:
https://github.com/kubernetes-sigs/yaml/blob/master/goyaml.v2/resolve.go
"""

from __future__ import annotations

import re
import sys
from typing import Any, ClassVar, Final

import yaml

_ONE_LINE: Final = sys.maxsize
_TAG: Final = "tag:yaml.org,2002:"
_BOOLEANS: Final = re.compile(r"^[yYnN]$")
_NUMBERS: Final = re.compile(
    r"^[-+]?(?:0[bBoOxX][0-9a-fA-F_]+|(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?)$"
)
_INTEGERS: Final = re.compile(r"^[-+]?(?:0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_FLOATS: Final = re.compile(
    r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
"""PyYAML's own, without numbers to the base of 60: kubectl reads 12:30:45 as a string."""


class _Dumper(yaml.SafeDumper):
    """Quotes strings that kubectl would read as numbers or booleans."""


class _Loader(yaml.SafeLoader):
    """Reads dates, times of day and `=` as strings, and y and n as booleans."""

    bool_values: ClassVar[dict[str, bool]] = {**yaml.SafeLoader.bool_values, "y": True, "n": False}


# The class attribute is shared with PyYAML's own classes: each of ours gets a copy before it is changed.
_Dumper.yaml_implicit_resolvers = {first: list(own) for first, own in yaml.SafeDumper.yaml_implicit_resolvers.items()}
_Dumper.add_implicit_resolver(f"{_TAG}float", _NUMBERS, list("-+.0123456789"))
_Dumper.add_implicit_resolver(f"{_TAG}bool", _BOOLEANS, list("yYnN"))

_REPLACED: Final = {f"{_TAG}{name}" for name in ("timestamp", "value", "int", "float")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in own if tag not in _REPLACED]
    for first, own in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}bool", _BOOLEANS, list("yYnN"))
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOATS, list("-+.0123456789"))
_Loader.add_implicit_resolver(f"{_TAG}int", _INTEGERS, list("-+0123456789"))


def written(value: Any) -> str:
    """Return a value as one YAML document in the order of its keys, each string on one line, without an end of line."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_ONE_LINE)
    return str(text).rstrip("\n")


def documents(text: str) -> list[Any]:
    """Return the documents of a stream.

    Raises:
        yaml.YAMLError: it is not YAML.
        ValueError: a value is not of the type that its tag names.
    """
    return list(yaml.load_all(text, Loader=_Loader))
