"""Helm's text as objects, in the namespace where they belong.

objects = normalized(parsed(text), namespace="karpenter", namespaced=lambda obj, others: True)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import yaml

from localcloud.standins.kubernetes.metadata import Object, name, set_metadata
from localcloud.standins.kubernetes.metadata import namespace as namespace_of
from localcloud.standins.serve import PluginError

_SHOWN: Final = 100
_BOOLEANS: Final = {
    **dict.fromkeys(("y", "yes", "true", "on"), True),
    **dict.fromkeys(("n", "no", "false", "off"), False),
}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it (go-yaml 2): neither dates nor numbers to the base of sixty; y and n are booleans."""

    yaml_implicit_resolvers: Final[dict[str | None, Any]] = {}


def _integer(loader: Any, node: yaml.ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node)).replace("_", "")
    sign, digits = (-1 if text.startswith("-") else 1), text.lstrip("+-")
    if re.fullmatch(r"0[0-7]+", digits):
        return sign * int(digits, 8)
    try:
        return sign * int(digits, 0)
    except ValueError:  # such as 08, which go-yaml reads as a decimal fraction
        return sign * float(digits)


def _boolean(loader: Any, node: yaml.ScalarNode) -> bool:
    return _BOOLEANS[str(loader.construct_scalar(node)).lower()]


def _add(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))


_add("bool", "|".join(f"{w}|{w.capitalize()}|{w.upper()}" for w in _BOOLEANS), "yYnNtTfFoO")
_add("int", r"[-+]?(?:0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|[0-9][0-9_]*)", "-+0123456789")
_add("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+0123456789.")
_add("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"])
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:bool", _boolean)


def parsed(text: str) -> list[Object]:
    """Return the documents of helm's output that aren't empty.

    Raises:
        PluginError: It is no YAML, or a document is no mapping.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise PluginError(f"the rendered chart can't be read as YAML: {error}") from error
    for document in documents:
        if document and not isinstance(document, dict):
            raise PluginError(f"the rendered chart holds a document that is no object: `{_short(document)}`")
    return [_with_text_keys(document) for document in documents if document]


def normalized(
    objects: Sequence[Object], namespace: str, namespaced: Callable[[Object, Sequence[Object]], bool]
) -> list[Object]:
    """Return the objects without lists, each with the apiVersion and namespace that the API server would use.

    Args:
        objects: What the chart holds.
        namespace: Where objects go that name no namespace.
        namespaced: Whether an object lives in a namespace; among the others may be its definition.

    Raises:
        PluginError: An object has no kind, apiVersion or name.
    """
    single = [dict(obj) for obj in _expanded(objects)]
    for obj in single:
        _complete(obj)
        if not namespace_of(obj) and namespaced(obj, single):
            set_metadata(obj, "namespace", namespace)
    return single


def _complete(obj: Object) -> None:
    if not obj.get("kind") or not obj.get("apiVersion"):
        raise PluginError(f"Kubernetes resources require a kind and apiVersion: `{_short(obj)}`")
    if not name(obj):
        raise PluginError(f"Kubernetes resources require a .metadata.name: `{_short(obj)}`")
    obj["apiVersion"] = str(obj["apiVersion"]).removeprefix("core/")


def _expanded(objects: Sequence[Object]) -> list[Object]:
    """Replace each list by its items: the API server doesn't make lists either."""
    found: list[Object] = []
    for obj in objects:
        items = obj.get("items")
        found += _expanded(items) if isinstance(items, list) else [obj]
    return found


def _with_text_keys(value: Any) -> Any:
    """Return the value with the keys that JSON would have."""
    if isinstance(value, dict):
        return {_key(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(item) for item in value]
    return value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
