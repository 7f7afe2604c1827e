"""Whether objects of a kind live in a namespace, as far as that is known without asking the API server."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from localcloud.standins.kubernetes.cluster.kinds import built_in_namespaced, group_of
from localcloud.standins.kubernetes.metadata import Object


class Scopes:
    """The built-in kinds, and those that this process has seen definitions of: a preview creates no definition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._defined: dict[tuple[str, str], bool] = {}

    def learn(self, obj: Object) -> None:
        """Remember the kind that a CustomResourceDefinition defines; ignore other objects."""
        found = defined_kinds([obj])
        with self._lock:
            self._defined |= found

    def namespaced(self, obj: Object, others: Iterable[Object] = ()) -> bool | None:
        """Return whether an object lives in a namespace; among the others may be its definition. None: not known."""
        api_version, kind = str(obj.get("apiVersion")), str(obj.get("kind"))
        built_in = built_in_namespaced(api_version, kind)
        if built_in is not None:
            return built_in
        key = (group_of(api_version), kind)
        with self._lock:
            return defined_kinds(others).get(key, self._defined.get(key))


def defined_kinds(objects: Iterable[Object]) -> dict[tuple[str, str], bool]:
    """Return group and kind of what definitions among the objects define, each with whether it lives in a namespace."""
    specs = [_mapping(obj.get("spec")) for obj in objects if _is_definition(obj)]
    return {
        (str(spec.get("group")), str(_mapping(spec.get("names")).get("kind"))): spec.get("scope") == "Namespaced"
        for spec in specs
    }


def _is_definition(obj: Object) -> bool:
    group = group_of(str(obj.get("apiVersion")))
    return (group, obj.get("kind")) == ("apiextensions.k8s.io", "CustomResourceDefinition")


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a map; an empty one for what is missing or not known yet."""
    return value if isinstance(value, Mapping) else {}
