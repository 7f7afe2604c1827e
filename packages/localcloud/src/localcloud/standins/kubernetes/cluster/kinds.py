"""What kind of Kubernetes object a Pulumi type token names, and whether it lives in a namespace.

Token.parse("kubernetes:batch/v1:JobPatch")     # group batch, version v1, kind Job, a patch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_BUILT_IN_GROUPS: Final = frozenset(("", "apps", "autoscaling", "batch", "extensions", "policy"))
"""The built-in groups without `.k8s.io`; a kind of any other group comes from a CustomResourceDefinition."""
_CLUSTER_SCOPED: Final = frozenset(
    "APIService CSIDriver CSINode CertificateSigningRequest ClusterRole ClusterRoleBinding ClusterTrustBundle "
    "ComponentStatus CustomResourceDefinition DeviceClass DeviceTaintRule FlowSchema IPAddress IngressClass "
    "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration Namespace Node "
    "PersistentVolume PodSecurityPolicy PriorityClass PriorityLevelConfiguration ResourceClass ResourceSlice "
    "RuntimeClass ServiceCIDR StorageClass StorageVersionMigration ValidatingAdmissionPolicy "
    "ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration VolumeAttachment VolumeAttributesClass".split()
)
_BUILT_IN_DOMAINS: Final = frozenset(
    "admissionregistration apiextensions apiregistration certificates coordination discovery events "
    "flowcontrol.apiserver networking node rbac.authorization resource scheduling storage storagemigration".split()
)
_NOT_COVERED: Final = frozenset(("helm.sh", "kustomize", "yaml", "meta"))


class UnsupportedType(ValueError):
    """A resource type, or a part of its metadata, that this plug-in does not know or does not cover."""


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
        """Read `kubernetes:GROUP/VERSION:KIND`.

        Raises:
            UnsupportedType: The token names no Kubernetes object, a list, or something this plug-in does not cover.
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
        if _built_in(group) and kind.endswith("List"):
            raise UnsupportedType(
                f'resource type "{token}": list resources exist for compatibility with YAML manifests and Helm charts, '
                "and cannot be created directly. Use the underlying resource type instead"
            )
        patch = kind.endswith("Patch") and len(kind) > len("Patch")
        return Token(group, version, kind.removesuffix("Patch") if patch else kind, patch)


def group_of(api_version: str) -> str:
    """Return the API group of an apiVersion; the core group is the empty string."""
    group = api_version.rpartition("/")[0]
    return "" if group == "core" else group


def built_in_namespaced(api_version: str, kind: str) -> bool | None:
    """Return whether objects of a built-in kind live in a namespace; None when the kind is not built in."""
    return kind not in _CLUSTER_SCOPED if _built_in(group_of(api_version)) else None


def _built_in(group: str) -> bool:
    return group in _BUILT_IN_GROUPS or (
        group.endswith(".k8s.io") and group.removesuffix(".k8s.io") in _BUILT_IN_DOMAINS
    )
