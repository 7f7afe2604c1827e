"""Write `schema.json` from the installed `pulumi_aws`: the names and types that the SDK accepts.

    python -m localcloud.standins.aws.schema_from_sdk

Run it after an update of the SDK. The plug-in itself only reads the file: importing the SDK's classes would add a
second to every `pulumi up`. A test compares the file with the installed SDK.
"""

from __future__ import annotations

import importlib
import json
import re
import types
import typing
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pulumi

SCHEMA_FILE = Path(__file__).with_name("schema.json")


def build(covered: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """The schema of the resource types in `covered`; an input that isn't covered has a name and no type."""
    objects: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the SDK warns of its old names on import
        resources = {token: _resource(token, frozenset(covered[token]), objects) for token in sorted(covered)}
    return {"resources": resources, "objects": dict(sorted(objects.items()))}


def _resource(token: str, covered: frozenset[str], objects: dict[str, Any]) -> dict[str, Any]:
    name = token.rpartition(":")[2]
    module = module_of(token)
    # Where a nested type has the name already, the SDK calls the resource's own arguments ...InitArgs.
    arguments = getattr(module, name + "InitArgs", None) or getattr(module, name + "Args")
    state = getattr(module, f"_{name}State")
    return {
        "inputs": _fields(arguments, objects, covered),
        "required": _required(arguments),
        "outputs": sorted(wire for wire, _ in _wire_names(state)),
    }


def module_of(token: str) -> types.ModuleType:
    """Return the module that the SDK has for a resource or function: its package has nested types of the same names."""
    _, path, name = token.split(":")
    package, file = path.split("/")
    place = "pulumi_aws" if package == "index" else f"pulumi_aws.{package}"
    # The SDK's packages are loaded when a name of theirs is first asked for. One that is loaded because a module of its
    # own is imported lacks that module's names from then on.
    hasattr(importlib.import_module(place), name)
    snake = re.sub("([A-Z])", r"_\1", file).lower()
    return importlib.import_module(f"{place}.{snake}")


def _required(arguments: type) -> list[str]:
    names = {py: wire for wire, py in _wire_names(arguments)}
    defaults = arguments.__init__.__kwdefaults__ or {}  # type: ignore[misc]
    parameters = [name for name in arguments.__init__.__annotations__ if name != "return"]  # type: ignore[misc]
    return sorted(names[name] for name in parameters if name not in defaults)


def _wire_names(arguments: type) -> list[tuple[str, str]]:
    """Pairs of (name on the wire, name in Python)."""
    found = []
    for name, value in vars(arguments).items():
        if isinstance(value, property):
            found.append((getattr(value.fget, "_pulumi_name", name), name))
    return found


def _fields(arguments: type, objects: dict[str, Any], covered: frozenset[str] | None = None) -> dict[str, str]:
    """The members of a class of arguments, name to type; "any" for one that isn't in `covered`."""
    fields = {}
    for wire, name in _wire_names(arguments):
        if covered is not None and wire not in covered:
            fields[wire] = "any"
            continue
        getter = vars(arguments)[name].fget
        scope = vars(importlib.import_module(arguments.__module__)) | {
            "Output": pulumi.Output,
            "T": typing.TypeVar("T"),
        }
        hints = typing.get_type_hints(getter, scope)
        fields[wire] = _type(hints["return"], objects)
    return dict(sorted(fields.items()))


def _type(hint: Any, objects: dict[str, Any]) -> str:
    """`string`, `number`, `boolean`, `any`, `[item]`, `{item}` or the name of an object."""
    simple = {str: "string", int: "number", float: "number", bool: "boolean"}
    if hint in simple:
        return simple[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union or origin is types.UnionType:
        return _union([argument for argument in arguments if argument is not type(None)], objects)
    if origin is not None and origin.__name__ == "Sequence":
        return f"[{_type(arguments[0], objects)}]"
    if origin is not None and origin.__name__ == "Mapping":
        return f"{{{_type(arguments[1], objects)}}}"
    if isinstance(hint, type) and hasattr(hint, "_pulumi_input_type"):
        return _object(hint, objects)
    return "any"


def _union(arguments: list[Any], objects: dict[str, Any]) -> str:
    """The plain member of `Input[T]`, that is T | Awaitable[T] | Output[T]; enums are their values."""
    plain = [
        argument
        for argument in arguments
        if getattr(typing.get_origin(argument), "__name__", "") not in ("Awaitable", "Output")
        and not getattr(argument, "__name__", "").endswith("ArgsDict")
    ]
    kinds = [_type(argument, objects) for argument in plain]
    known = [kind for kind in kinds if kind != "any"]
    return known[0] if known else "any"


def _object(hint: type, objects: dict[str, Any]) -> str:
    module = hint.__module__.removeprefix("pulumi_aws.").removesuffix("._inputs").removesuffix("_inputs")
    name = f"{module}.{hint.__name__.removesuffix('Args')}"
    if name not in objects:
        objects[name] = {}  # an object may hold itself
        objects[name] = {"fields": _fields(hint, objects), "required": _required(hint)}
    return name


def dumps(schema: dict[str, Any]) -> str:
    """The text of the file: one line for each type, so that a change of the SDK shows as a few lines."""
    sections = []
    for name, members in sorted(schema.items()):
        lines = [f"  {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(members.items())]
        sections.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def expected() -> str:
    """The text that the file must have for the installed SDK and the types that the stand-in covers."""
    from localcloud.standins.aws.registry import ENTRIES

    return dumps(build({token: entry.covered() for token, entry in ENTRIES.items()}))


def main() -> None:
    """Write the file."""
    SCHEMA_FILE.write_text(expected())


if __name__ == "__main__":
    main()
