"""Makes Pulumi resources of manifests and charts. Only this module knows the resource class of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from workloads.manifests import Manifest


def register(manifest: Manifest, *, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register one object; the resource's name is `kind-name`.

    Raises:
        KeyError: the program has no class for the manifest's kind.
    """
    kind = manifest["kind"]
    fields = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    resource: pulumi.CustomResource = _class_of(manifest["apiVersion"], kind)(
        f"{kind.lower()}-{manifest['metadata']['name']}",
        opts=_deleted_first(opts),
        **{_snake(key): fields[key] for key in fields},
    )
    return resource


def register_custom(name: str, manifest: Manifest, *, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register one object of a kind that a CustomResourceDefinition defines, under a resource name of its own.

    An object that gets another name is then replaced. Under `kind-name` it would be another resource, and Pulumi would
    delete the old one only at the very end.
    """
    return kubernetes.apiextensions.CustomResource(
        name,
        api_version=manifest["apiVersion"],
        kind=manifest["kind"],
        metadata=manifest["metadata"],
        spec=manifest["spec"],
        opts=_deleted_first(opts),
    )


@dataclass(frozen=True)
class Release:
    """One installation of a Helm chart.

    Attributes:
        name: of the release, and of its Pulumi resource.
        namespace: where its objects are.
        chart: `oci://` address or folder of the chart.
        version: of the chart, for an address.
        values: those that differ from the chart's own.
        definitions: whether to install the CustomResourceDefinitions in the chart's folder `crds` too.
    """

    name: str
    namespace: str
    chart: str
    version: str | None
    values: Manifest
    definitions: bool


def register_chart(release: Release, *, opts: pulumi.ResourceOptions) -> pulumi.ComponentResource:
    """Register the objects that Helm renders from a chart.

    A resource that depends on the chart is created after all of its objects are ready, and deleted before them.
    """
    return kubernetes.helm.v4.Chart(
        release.name,
        name=release.name,
        namespace=release.namespace,
        chart=release.chart,
        version=release.version,
        values=release.values,
        skip_crds=not release.definitions,
        opts=opts,
    )


def _deleted_first(opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Return options with which Pulumi deletes an object before it creates the replacement.

    The provider adopts an object that exists. A replacement that is created first may be the same object, and Pulumi
    would delete it in the end.
    """
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=True))


def _class_of(api_version: str, kind: str) -> Any:
    classes: dict[tuple[str, str], Any] = {
        ("v1", "Namespace"): kubernetes.core.v1.Namespace,
        ("v1", "ConfigMap"): kubernetes.core.v1.ConfigMap,
        ("v1", "PersistentVolume"): kubernetes.core.v1.PersistentVolume,
        ("v1", "PersistentVolumeClaim"): kubernetes.core.v1.PersistentVolumeClaim,
        ("v1", "LimitRange"): kubernetes.core.v1.LimitRange,
        ("v1", "ResourceQuota"): kubernetes.core.v1.ResourceQuota,
        ("v1", "Secret"): kubernetes.core.v1.Secret,
        ("v1", "Service"): kubernetes.core.v1.Service,
        ("v1", "ServiceAccount"): kubernetes.core.v1.ServiceAccount,
        ("apps/v1", "DaemonSet"): kubernetes.apps.v1.DaemonSet,
        ("apps/v1", "Deployment"): kubernetes.apps.v1.Deployment,
        ("apps/v1", "StatefulSet"): kubernetes.apps.v1.StatefulSet,
        ("batch/v1", "Job"): kubernetes.batch.v1.Job,
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): kubernetes.apiextensions.v1.CustomResourceDefinition,
        ("networking.k8s.io/v1", "NetworkPolicy"): kubernetes.networking.v1.NetworkPolicy,
        ("policy/v1", "PodDisruptionBudget"): kubernetes.policy.v1.PodDisruptionBudget,
        ("rbac.authorization.k8s.io/v1", "ClusterRole"): kubernetes.rbac.v1.ClusterRole,
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): kubernetes.rbac.v1.ClusterRoleBinding,
        ("rbac.authorization.k8s.io/v1", "Role"): kubernetes.rbac.v1.Role,
        ("rbac.authorization.k8s.io/v1", "RoleBinding"): kubernetes.rbac.v1.RoleBinding,
        ("scheduling.k8s.io/v1", "PriorityClass"): kubernetes.scheduling.v1.PriorityClass,
    }
    return classes[(api_version, kind)]


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
