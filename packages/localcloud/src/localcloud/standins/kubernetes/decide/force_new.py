"""Which changed properties replace an object instead of updating it.

The facts are those of pulumi-kubernetes (provider/pkg/provider/diff.go). A pattern is a path with `*` for any element
of a list; a change at, below or above that path counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from localcloud.standins.kubernetes.cluster.kinds import group_of
from localcloud.standins.kubernetes.decide.diff import Path

Pattern = tuple[str, ...]


def _patterns(*dotted: str) -> tuple[Pattern, ...]:
    return tuple(tuple(text.split(".")) for text in dotted)


def _spec(fields: str, above: str = "") -> tuple[Pattern, ...]:
    return _patterns(*(f"spec.{above}{field}" for field in fields.split()))


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
