"""Decides what a change of inputs means: nothing, an update or a replacement, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulumi.provider.experimental import provider as sdk

from localcloud.standins.kubernetes import metadata
from localcloud.standins.kubernetes.cluster.kinds import group_of
from localcloud.standins.kubernetes.decide.diff import (
    Change,
    Path,
    compare,
    ignored,
    is_empty,
    normalize,
    prune,
    render_path,
    value_at,
)
from localcloud.standins.kubernetes.metadata import Object

Pattern = tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The changes, and which of them replace the object; `forced` are replacements without a change of a property."""

    changes: dict[Path, Change]
    replacing: frozenset[Path]
    forced: tuple[Path, ...] = ()

    @property
    def replaces(self) -> list[str]:
        """The paths that replace the object, as the engine writes them."""
        return sorted(map(render_path, self.replacing)) + [render_path(path) for path in self.forced]

    def response(self, old_live: Object, new: Object) -> sdk.DiffResponse:
        """Return the answer to the engine. An object that the program named is deleted before its successor is made."""
        identities = {(metadata.namespace(obj), metadata.name(obj)) for obj in (old_live, new)}
        named = metadata.has_name(new) and not metadata.annotated_true(new, metadata.AUTONAMED)
        return sdk.DiffResponse(
            changes=bool(self.changes or self.forced),
            replaces=self.replaces,
            delete_before_replace=bool(self.replaces) and named and len(identities) == 1,
            diffs=sorted({str(path[0]) for path in self.changes}),
            detailed_diff={
                render_path(path): sdk.PropertyDiff(self._kind(path, change), change is Change.DELETE)
                for path, change in self.changes.items()
            },
        )

    def _kind(self, path: Path, change: Change) -> sdk.PropertyDiffKind:
        return sdk.PropertyDiffKind[change.name + ("_REPLACE" if path in self.replacing else "")]


@dataclass(frozen=True)
class Rules:
    """What decides apart from the objects.

    Args:
        namespaced: Whether the kind lives in namespaces: if so, none means `default`; otherwise one is dropped.
        ignore: The paths of `ignoreChanges`.
        patch: Whether it is a Patch resource, which only its identity replaces.
        config_map_mutable, secret_mutable: The provider's settings.
    """

    namespaced: bool = True
    ignore: Sequence[Path] = ()
    patch: bool = False
    config_map_mutable: bool = False
    secret_mutable: bool = False


def plan(live: Object, old_inputs: Object, new_inputs: Object, rules: Rules) -> Plan:
    """Compare the live object, reduced to the shape of the old inputs, with the new inputs.

    Args:
        live: The object as the state has it.
        old_inputs: The last inputs.
        new_inputs: The new inputs.
        rules: What else decides.
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
    mutable = {"config_map_mutable": rules.config_map_mutable, "secret_mutable": rules.secret_mutable}
    patterns = IDENTITY if rules.patch else force_new(new, **mutable)
    replacing = {path for path in found if matches(patterns, path, value_at(new, path))}
    if found.get(("metadata",)) is Change.DELETE:
        replacing.add(("metadata",))
    return Plan(found, frozenset(replacing))


def _with_namespace(obj: Object, namespaced: bool) -> Object:
    if not isinstance(obj.get("metadata", {}), dict):
        return obj
    meta: dict[str, Any] = {**metadata.metadata(obj)}
    where = meta.pop("namespace", None)
    return {**obj, "metadata": {**meta, **({"namespace": where or "default"} if namespaced else {})}}


def _dropped(path: Path, new: Object, old_inputs: Object) -> bool:
    """Return whether the value is an empty one that the old inputs have too: the API server leaves such values out."""
    value = value_at(new, path)
    return is_empty(value) and value_at(old_inputs, path) == value


def _patterns(*dotted: str) -> tuple[Pattern, ...]:
    return tuple(tuple(text.split(".")) for text in dotted)


def _spec(fields: str, above: str = "") -> tuple[Pattern, ...]:
    return _patterns(*(f"spec.{above}{field}" for field in fields.split()))


# What replaces an object, from pulumi-kubernetes (provider/pkg/provider/diff.go). A pattern is a path with `*` for any
# element of a list; a change at, below or above that path counts.
IDENTITY: Final = _patterns("metadata.name", "metadata.namespace")
_ROLE_BINDING: Final = _patterns("roleRef")
_POD_FIELDS: Final = (
    "affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks hostAliases hostIPC hostNetwork "
    "hostPID hostname imagePullSecrets nodeName nodeSelector overhead preemptionPolicy priority priorityClassName "
    "readinessGates restartPolicy runtimeClassName schedulerName securityContext serviceAccount serviceAccountName "
    "shareProcessNamespace subdomain terminationGracePeriodSeconds volumes"
)
_CONTAINER_FIELDS: Final = (
    "args command env image imagePullPolicy lifecycle livenessProbe ports readinessProbe resources securityContext "
    "stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
)
_VOLUME_SOURCES: Final = (
    "awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc flexVolume flocker gcePersistentDisk glusterfs "
    "hostPath iscsi local nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
)

_TABLE: Final[Mapping[tuple[str, str], tuple[Pattern, ...]]] = {
    ("apps", "DaemonSet"): _spec("selector"),
    ("apps", "Deployment"): _spec("selector"),
    ("apps", "StatefulSet"): _spec(
        "podManagementPolicy revisionHistoryLimit selector serviceName volumeClaimTemplates"
    ),
    ("batch", "Job"): _spec("completions parallelism selector template"),
    ("", "ConfigMap"): _patterns("binaryData", "data"),
    ("", "Secret"): _patterns("type", "stringData", "data"),
    ("", "PersistentVolume"): _spec(_VOLUME_SOURCES),
    ("", "PersistentVolumeClaim"): _spec("accessModes selector storageClassName volumeName"),
    ("", "Pod"): _spec(_POD_FIELDS)
    + _spec(_CONTAINER_FIELDS, "containers.*.")
    + _spec(_CONTAINER_FIELDS, "initContainers.*."),
    ("", "ResourceQuota"): _spec("scopes"),
    ("", "Service"): _spec("clusterIP"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _ROLE_BINDING,
    ("rbac.authorization.k8s.io", "RoleBinding"): _ROLE_BINDING,
    ("storage.k8s.io", "StorageClass"): _patterns("parameters", "provisioner"),
}


def force_new(
    obj: Mapping[str, Any], *, config_map_mutable: bool = False, secret_mutable: bool = False
) -> tuple[Pattern, ...]:
    """Return the patterns that replace an object of this kind.

    Args:
        obj: The new inputs.
        config_map_mutable, secret_mutable: The provider's settings; an object marked `immutable` is replaced anyway.
    """
    key = (group_of(str(obj.get("apiVersion", ""))), str(obj.get("kind", "")))
    patterns = _TABLE.get(key, ())
    mutable = {("", "ConfigMap"): config_map_mutable, ("", "Secret"): secret_mutable}.get(key, False)
    if mutable and obj.get("immutable") is not True:
        patterns = tuple(pattern for pattern in patterns if pattern == ("type",))
    return IDENTITY + patterns


def matches(patterns: Sequence[Pattern], path: Path, value: Any) -> bool:
    """Return whether changing `path` to `value` (None for a removal) touches one of the patterns."""
    return any(_touches(pattern, path, value) for pattern in patterns)


def _touches(pattern: Pattern, path: Path, value: Any) -> bool:
    for expected, step in zip(pattern, path, strict=False):
        if not (expected == step or (expected == "*" and isinstance(step, int))):
            return False
    return len(pattern) <= len(path) or _reaches(pattern[len(path) :], value)


def _reaches(pattern: Pattern, value: Any) -> bool:
    """Return whether the value, put above the pattern's place, has something there."""
    if not pattern:
        return True
    if pattern[0] == "*":
        return isinstance(value, list) and any(_reaches(pattern[1:], item) for item in value)
    return isinstance(value, dict) and pattern[0] in value and _reaches(pattern[1:], value[pattern[0]])
