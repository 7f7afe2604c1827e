"""Writes a Python program for what `pulumi import` found: from PCL, the engine's intermediate language. Pure.

    to_python('resource v "aws:ec2/vpc:Vpc" { cidrBlock = "10.0.0.0/16" }')

`pulumi import` writes only resources with literal values, references to one another and options; this reads just that.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<comment>\#[^\n]*|//[^\n]*)
      |(?P<string>"(?:[^"\\]|\\.)*")
      |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      |(?P<word>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)
      |(?P<mark>[{}\[\](),=:]))""",
    re.VERBOSE,
)
_CONSTANTS: Final = {"true": "True", "false": "False", "null": "None"}
_CALLS: Final = {
    "fileAsset": "pulumi.FileAsset",
    "stringAsset": "pulumi.StringAsset",
    "remoteAsset": "pulumi.RemoteAsset",
    "fileArchive": "pulumi.FileArchive",
    "remoteArchive": "pulumi.RemoteArchive",
    "secret": "pulumi.Output.secret",
}
_INDENT: Final = "    "


class PclError(Exception):
    """Something in the text that this doesn't write code for; the message shows it."""


@dataclass(frozen=True)
class Code:
    """A piece of Python."""

    text: str


@dataclass(frozen=True)
class Resource:
    """A resource block: values are `Code`, lists, or dicts whose keys are Python's."""

    name: str
    token: str
    inputs: dict[str, Any]
    options: dict[str, Any]


def to_python(source: str) -> str:
    """The program.

    Raises:
        PclError: the text holds something else than resources with literal values.
    """
    resources = list(_Parser(source).resources())
    packages = sorted({resource.token.split(":")[0] for resource in resources})
    lines = ["import pulumi", *(f"import pulumi_{name} as {name}" for name in packages), ""]
    lines.extend(_declaration(resource) for resource in resources)
    return "\n".join(lines) + "\n"


def snake(name: str) -> str:
    """A property's name in Python, as the SDKs have it."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)).lower()
    return spaced + "_" if keyword.iskeyword(spaced) else spaced


def _variable(name: str) -> str:
    return snake(name).replace("-", "_")


def constructor(token: str) -> str:
    """The class of a type: `aws:ec2/vpc:Vpc` is `aws.ec2.Vpc`, `kubernetes:apps/v1:Deployment` is in `apps.v1`."""
    package, module, name = token.split(":")
    parts = [part for part in module.split("/") if part not in ("index", name[0].lower() + name[1:])]
    return ".".join([package, *(part.split(".")[0] for part in parts), name])


def _declaration(resource: Resource) -> str:
    logical = resource.inputs.pop("__logicalName", Code(json.dumps(resource.name)))
    arguments = [logical.text, *(f"{name}={_write(value, 1)}" for name, value in resource.inputs.items())]
    if resource.options:
        options = ", ".join(f"{name}={_write(value, 1)}" for name, value in resource.options.items())
        arguments.append(f"opts=pulumi.ResourceOptions({options})")
    body = f",\n{_INDENT}".join(arguments)
    return f"{_variable(resource.name)} = {constructor(resource.token)}(\n{_INDENT}{body},\n)"


def _write(value: Any, depth: int) -> str:
    if isinstance(value, Code):
        return value.text
    inner, outer = _INDENT * (depth + 1), _INDENT * depth
    if isinstance(value, list):
        items = [_write(item, depth + 1) for item in value]
        return "[" + "".join(f"\n{inner}{item}," for item in items) + (f"\n{outer}]" if items else "]")
    items = [f"{json.dumps(key)}: {_write(item, depth + 1)}" for key, item in value.items()]
    return "{" + "".join(f"\n{inner}{item}," for item in items) + (f"\n{outer}}}" if items else "}")


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, source: str) -> None:
        self._tokens = list(_tokens(source))
        self._next = 0

    def resources(self) -> Iterator[Resource]:
        while self._next < len(self._tokens):
            kind, word = self._take()
            labels = []
            while self._peek() != "{":
                labels.append(self._take()[1])
            if kind != "word" or word not in ("resource", "package"):
                raise PclError(f"cannot write code for a block of {word}")
            body, options = self._body()
            if word == "resource":
                yield Resource(labels[0], json.loads(labels[1]), body, options)

    def _body(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._expect("{")
        inputs: dict[str, Any] = {}
        options: dict[str, Any] = {}
        while self._peek() != "}":
            name = self._take()[1]
            if name == "options" and self._peek() == "{":
                options = self._body()[0]
            else:
                self._expect("=")
                inputs[name if name.startswith("__") else snake(name)] = self._value()
        self._expect("}")
        return inputs, options

    def _value(self) -> Any:
        kind, text = self._take()
        if kind == "string":
            return Code(_string(text))
        if kind == "number":
            return Code(text)
        if text == "[":
            return self._sequence("]")
        if text == "{":
            return self._object()
        if text in _CONSTANTS:
            return Code(_CONSTANTS[text])
        if kind == "word" and self._peek() == "(":
            return self._call(text)
        if kind == "word":
            root, *members = text.split(".")
            return Code(".".join([_variable(root), *map(snake, members)]))
        raise PclError(f"cannot write code for {text}")

    def _sequence(self, end: str) -> list[Any]:
        items = []
        while self._peek() != end:
            items.append(self._value())
            if self._peek() == ",":
                self._take()
        self._expect(end)
        return items

    def _call(self, name: str) -> Code:
        self._expect("(")
        arguments = self._sequence(")")
        if name not in _CALLS:
            raise PclError(f"cannot write code for a call of {name}")
        return Code(f"{_CALLS[name]}({', '.join(_write(argument, 1) for argument in arguments)})")

    def _object(self) -> dict[str, Any]:
        """An object with bare keys is a typed one, whose members have names in Python; quoted keys are data."""
        found: dict[str, Any] = {}
        while self._peek() != "}":
            kind, key = self._take()
            if self._peek() in ("=", ":"):
                self._take()
            found[json.loads(key) if kind == "string" else snake(key)] = self._value()
            if self._peek() == ",":
                self._take()
        self._expect("}")
        return found

    def _peek(self) -> str:
        if self._next >= len(self._tokens):
            raise PclError("the text ends within a block")
        return self._tokens[self._next][1]

    def _take(self) -> tuple[str, str]:
        self._peek()
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, mark: str) -> None:
        found = self._take()[1]
        if found != mark:
            raise PclError(f"expected {mark}, found {found}")


def _tokens(source: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(source.rstrip())
    while position < end:
        match = _TOKEN.match(source, position)
        if match is None:
            raise PclError(f"cannot read {source[position : position + 20]!r}")
        position = match.end()
        if match.lastgroup != "comment":
            yield str(match.lastgroup), match.group(str(match.lastgroup))


def _string(text: str) -> str:
    """A quoted template without interpolation as a Python string."""
    if re.search(r"(?<!\$)\$\{", text):
        raise PclError(f"cannot write code for the template {text}")
    return json.dumps(json.loads(text).replace("$${", "${").replace("%%{", "%{"), ensure_ascii=False)
