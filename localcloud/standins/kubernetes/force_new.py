"""Which changed properties replace an object instead of updating it.

The facts are those of pulumi-kubernetes (provider/pkg/provider/diff.go). A pattern is a path with `*` for any element
of a list; a change at, below or above the pattern's place counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from localcloud.standins.kubernetes.kinds import group_of

Path = tuple[str | int, ...]
Pattern = tuple[str, ...]


def _patterns(*dotted: str) -> tuple[Pattern, ...]:
    return tuple(tuple(text.split(".")) for text in dotted)


IDENTITY: Final = _patterns("metadata.name", "metadata.namespace")
_SELECTOR: Final = _patterns("spec.selector")
_ROLE_BINDING: Final = _patterns("roleRef")
_POD_FIELDS: Final = (
    "affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks hostAliases hostIPC hostNetwork "
    "hostPID hostname imagePullSecrets nodeName nodeSelector overhead preemptionPolicy priority priorityClassName "
    "readinessGates restartPolicy runtimeClassName schedulerName securityContext serviceAccount serviceAccountName "
    "shareProcessNamespace subdomain terminationGracePeriodSeconds volumes"
).split()
_CONTAINER_FIELDS: Final = (
    "args command env image imagePullPolicy lifecycle livenessProbe ports readinessProbe resources securityContext "
    "stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
).split()
_VOLUME_SOURCES: Final = (
    "awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc flexVolume flocker gcePersistentDisk glusterfs "
    "hostPath iscsi local nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
).split()

_TABLE: Final[Mapping[tuple[str, str], tuple[Pattern, ...]]] = {
    ("apps", "DaemonSet"): _SELECTOR,
    ("apps", "Deployment"): _SELECTOR,
    ("apps", "StatefulSet"): _patterns(
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    ("batch", "Job"): _patterns("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    ("", "ConfigMap"): _patterns("binaryData", "data"),
    ("", "Secret"): _patterns("type", "stringData", "data"),
    ("", "PersistentVolume"): _patterns(*(f"spec.{source}" for source in _VOLUME_SOURCES)),
    ("", "PersistentVolumeClaim"): _patterns(
        "spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"
    ),
    ("", "Pod"): _patterns(
        *(f"spec.{field}" for field in _POD_FIELDS),
        *(f"spec.{group}.*.{field}" for group in ("containers", "initContainers") for field in _CONTAINER_FIELDS),
    ),
    ("", "ResourceQuota"): _patterns("spec.scopes"),
    ("", "Service"): _patterns("spec.clusterIP"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _ROLE_BINDING,
    ("rbac.authorization.k8s.io", "RoleBinding"): _ROLE_BINDING,
    ("storage.k8s.io", "StorageClass"): _patterns("parameters", "provisioner"),
}


def force_new(
    obj: Mapping[str, Any], *, config_map_mutable: bool = False, secret_mutable: bool = False
) -> tuple[Pattern, ...]:
    """The patterns that replace an object of this kind.

    Args:
        obj: the new inputs.
        config_map_mutable, secret_mutable: the provider's settings; one marked `immutable` is replaced all the same.
    """
    key = (group_of(str(obj.get("apiVersion", ""))), str(obj.get("kind", "")))
    patterns = _TABLE.get(key, ())
    mutable = {("", "ConfigMap"): config_map_mutable, ("", "Secret"): secret_mutable}.get(key, False)
    if mutable and obj.get("immutable") is not True:
        patterns = tuple(pattern for pattern in patterns if pattern == ("type",))
    return IDENTITY + patterns


def matches(patterns: Sequence[Pattern], path: Path, value: Any) -> bool:
    """Whether changing `path` to `value` (None for a removal) touches one of the patterns."""
    return any(_touches(pattern, path, value) for pattern in patterns)


def _touches(pattern: Pattern, path: Path, value: Any) -> bool:
    for expected, step in zip(pattern, path, strict=False):
        if not (expected == step or (expected == "*" and isinstance(step, int))):
            return False
    return len(pattern) <= len(path) or _reaches(pattern[len(path) :], value)


def _reaches(pattern: Pattern, value: Any) -> bool:
    """Whether the value, put above the pattern's place, has something there."""
    if not pattern:
        return True
    if pattern[0] == "*":
        return isinstance(value, list) and any(_reaches(pattern[1:], item) for item in value)
    return isinstance(value, dict) and pattern[0] in value and _reaches(pattern[1:], value[pattern[0]])
