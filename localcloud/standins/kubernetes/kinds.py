"""What kind of Kubernetes object a Pulumi type token names, and whether it lives in a namespace.

Token.parse("kubernetes:batch/v1:JobPatch")     # group batch, version v1, kind Job, a patch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_CLUSTER_SCOPED: Final[dict[str, frozenset[str]]] = {
    "": frozenset({"ComponentStatus", "Namespace", "Node", "PersistentVolume"}),
    "admissionregistration.k8s.io": frozenset(
        {
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        }
    ),
    "apiextensions.k8s.io": frozenset({"CustomResourceDefinition"}),
    "apiregistration.k8s.io": frozenset({"APIService"}),
    "certificates.k8s.io": frozenset({"CertificateSigningRequest", "ClusterTrustBundle"}),
    "flowcontrol.apiserver.k8s.io": frozenset({"FlowSchema", "PriorityLevelConfiguration"}),
    "networking.k8s.io": frozenset({"IPAddress", "IngressClass", "ServiceCIDR"}),
    "node.k8s.io": frozenset({"RuntimeClass"}),
    "policy": frozenset({"PodSecurityPolicy"}),
    "rbac.authorization.k8s.io": frozenset({"ClusterRole", "ClusterRoleBinding"}),
    "resource.k8s.io": frozenset({"DeviceClass", "DeviceTaintRule", "ResourceClass", "ResourceSlice"}),
    "scheduling.k8s.io": frozenset({"PriorityClass"}),
    "storage.k8s.io": frozenset({"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"}),
    "storagemigration.k8s.io": frozenset({"StorageVersionMigration"}),
}
BUILT_IN_GROUPS: Final[frozenset[str]] = frozenset(_CLUSTER_SCOPED) | {
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
}
"""The API groups that a cluster serves by itself; a kind of another group comes from a CustomResourceDefinition."""
_NOT_COVERED: Final[frozenset[str]] = frozenset({"helm.sh", "kustomize", "yaml", "meta"})


class UnsupportedType(ValueError):
    """A resource type that this plug-in does not know or does not cover."""


@dataclass(frozen=True)
class Token:
    """A parsed type token of a Kubernetes object."""

    group: str
    version: str
    kind: str
    patch: bool = False

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @staticmethod
    def parse(token: str) -> Token:
        """Reads `kubernetes:GROUP/VERSION:KIND`.

        Raises:
            UnsupportedType: the token names no Kubernetes object, a list, or something this plug-in does not cover.
        """
        package, _, rest = token.partition(":")
        module, _, kind = rest.rpartition(":")
        group, _, version = module.partition("/")
        if package != "kubernetes" or not version or not kind:
            raise UnsupportedType(f'unrecognized resource type "{token}": expected kubernetes:GROUP/VERSION:KIND')
        if group in _NOT_COVERED:
            raise UnsupportedType(
                f'resource type "{token}" is not covered by the local stand-in of the kubernetes provider'
            )
        group = "" if group == "core" else group
        if group in BUILT_IN_GROUPS and kind.endswith("List"):
            raise UnsupportedType(
                f'resource type "{token}": list resources exist for compatibility with YAML manifests and Helm charts, '
                "and cannot be created directly. Use the underlying resource type instead"
            )
        patch = kind.endswith("Patch") and len(kind) > len("Patch")
        return Token(group, version, kind.removesuffix("Patch") if patch else kind, patch)


def group_of(api_version: str) -> str:
    """The API group of an apiVersion; the core group is the empty string."""
    group = api_version.rpartition("/")[0]
    return "" if group == "core" else group


def built_in_namespaced(api_version: str, kind: str) -> bool | None:
    """Whether objects of a built-in kind live in a namespace; None when the kind is not built in."""
    group = group_of(api_version)
    if group not in BUILT_IN_GROUPS:
        return None
    return kind not in _CLUSTER_SCOPED.get(group, frozenset())
