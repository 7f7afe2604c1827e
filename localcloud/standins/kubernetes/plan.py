"""Decides what a change of inputs means: nothing, an update, a replacement, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulumi.provider.experimental import provider as sdk

from localcloud.standins.kubernetes import metadata
from localcloud.standins.kubernetes.diff import Change, compare, ignored, normalize, prune, render_path, value_at
from localcloud.standins.kubernetes.force_new import IDENTITY, Path, Pattern, force_new, matches
from localcloud.standins.kubernetes.metadata import Object

_KINDS = {
    (Change.ADD, False): sdk.PropertyDiffKind.ADD,
    (Change.ADD, True): sdk.PropertyDiffKind.ADD_REPLACE,
    (Change.DELETE, False): sdk.PropertyDiffKind.DELETE,
    (Change.DELETE, True): sdk.PropertyDiffKind.DELETE_REPLACE,
    (Change.UPDATE, False): sdk.PropertyDiffKind.UPDATE,
    (Change.UPDATE, True): sdk.PropertyDiffKind.UPDATE_REPLACE,
}


@dataclass(frozen=True)
class Plan:
    """The changes, and which of them replace the object."""

    changes: dict[Path, Change]
    replacing: frozenset[Path]
    forced: tuple[Path, ...] = ()

    def replaced_for(self, path: Path) -> Plan:
        """The plan with one more reason to replace the object, which is no change of a property."""
        return replace(self, forced=(*self.forced, path))

    @property
    def replaces(self) -> list[str]:
        """The paths that replace the object, as the engine writes them."""
        return [render_path(path) for path in sorted(self.replacing, key=render_path)] + [
            render_path(path) for path in self.forced
        ]

    def response(self, old_live: Object, new: Object) -> sdk.DiffResponse:
        """What the engine is told. An object with a name of the program's choice goes before its successor comes."""
        same_identity = metadata.name(new) == metadata.name(old_live) and metadata.namespace(new) == metadata.namespace(
            old_live
        )
        first = bool(self.replaces) and metadata.has_name(new) and not metadata.annotated_true(new, metadata.AUTONAMED)
        return sdk.DiffResponse(
            changes=bool(self.changes or self.forced),
            replaces=self.replaces,
            delete_before_replace=first and same_identity,
            diffs=sorted({str(path[0]) for path in self.changes}),
            detailed_diff={
                render_path(path): sdk.PropertyDiff(_KINDS[change, path in self.replacing], change is Change.DELETE)
                for path, change in self.changes.items()
            },
        )


@dataclass(frozen=True)
class Rules:
    """What besides the objects decides.

    Args:
        namespaced: whether the kind lives in namespaces: then none means `default`, else one is dropped.
        ignore: the paths of `ignoreChanges`.
        patch: whether it is a Patch resource, which only its identity replaces.
        config_map_mutable, secret_mutable: the provider's settings.
    """

    namespaced: bool = True
    ignore: Sequence[Path] = ()
    patch: bool = False
    config_map_mutable: bool = False
    secret_mutable: bool = False

    def replacing(self, new: Object) -> tuple[Pattern, ...]:
        """The patterns whose change replaces the object."""
        if self.patch:
            return IDENTITY
        return force_new(new, config_map_mutable=self.config_map_mutable, secret_mutable=self.secret_mutable)


def plan(live: Object, old_inputs: Object, new_inputs: Object, rules: Rules) -> Plan:
    """Compares the live object, cut to the shape of the old inputs, with the new inputs.

    Args:
        live: the object as the state has it.
        old_inputs: the last inputs.
        new_inputs: the new inputs.
        rules: what else decides.
    """
    old_inputs = normalize(old_inputs)
    old = _with_namespace(prune(live, old_inputs), rules.namespaced)
    new = _with_namespace(normalize(new_inputs), rules.namespaced)
    if metadata.name(new):
        old = {**old, "metadata": {**metadata.metadata(old), "name": metadata.name(live)}}
    old = {"apiVersion": new.get("apiVersion"), "kind": new.get("kind"), **old}
    found = {
        path: change
        for path, change in compare(old, new).items()
        if not any(ignored(path, each) for each in rules.ignore)
        and not (change is Change.ADD and _dropped(path, new, old_inputs))
    }
    patterns = rules.replacing(new)
    replacing = {path for path, change in found.items() if matches(patterns, path, _new_value(new, path, change))}
    if found.get(("metadata",)) is Change.DELETE:
        replacing.add(("metadata",))
    return Plan(found, frozenset(replacing))


def _new_value(new: Object, path: Path, change: Change) -> Any:
    return None if change is Change.DELETE else value_at(new, path)


def _with_namespace(obj: Object, namespaced: bool) -> Object:
    if not isinstance(obj.get("metadata", {}), dict):
        return {**obj}
    meta: dict[str, Any] = {
        key: value for key, value in metadata.metadata(obj).items() if key != "namespace" or namespaced
    }
    if namespaced and not meta.get("namespace"):
        meta["namespace"] = "default"
    return {**obj, "metadata": meta}


def _dropped(path: Path, new: Object, old_inputs: Object) -> bool:
    """Whether the value is an empty one that was asked for before too: the API server leaves such values out."""
    value = value_at(new, path)
    return value in (False, 0, "", {}, []) and value_at(old_inputs, path) == value
