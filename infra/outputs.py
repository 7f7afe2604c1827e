"""What `workloads` may know of the infrastructure: where its objects go, and the names that both sides use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

import settings
from infra.account import Account
from infra.cluster import Cluster
from infra.policies.roles import TRAINER_SERVICE_ACCOUNT, checkpoints_folder
from infra.shared_storage import POSIX_ID

__all__ = ["POSIX_ID", "TRAINER_SERVICE_ACCOUNT", "Platform", "checkpoints_folder", "kubernetes_platform"]


@dataclass(frozen=True)
class Platform:
    """The cluster; the providers of all Kubernetes objects, and of AWS resources that belong to them."""

    cluster: Cluster
    providers: Sequence[pulumi.ProviderResource]
    cluster_stays: bool
    """Whether the cluster is there after the stack: it was there before."""

    def options(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return options for components on the cluster, which are created after `after` and deleted before it."""
        return pulumi.ResourceOptions(providers=list(self.providers), depends_on=list(after))

    def mounts(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return options for what pods mount. When the whole stack is destroyed, it goes with namespace and cluster.

        Kubernetes deletes a claim when no pod mounts it any more. After a `pulumi up` that was killed, there can be
        pods that the state doesn't have; only the deletion of their namespace ends them. On a cluster that stays, a
        volume would stay too, so all of it is deleted, see `claims`.
        https://www.pulumi.com/docs/iac/concepts/options/deletedwith/
        """
        if self.cluster_stays:
            return self.options(*after)
        return pulumi.ResourceOptions.merge(self.options(*after), pulumi.ResourceOptions(deleted_with=self.cluster))

    def claims(self, space: pulumi.Resource, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return options for a claim in the namespace `space`. On a cluster that stays, the namespace deletes it.

        People's pods may mount it. It would wait for them, and only the deletion of the namespace ends them.
        """
        if self.cluster_stays:
            return pulumi.ResourceOptions(depends_on=list(after), deleted_with=space)
        return pulumi.ResourceOptions(depends_on=list(after), deleted_with=self.cluster)


def kubernetes_platform(
    stack: settings.Settings, account: Account, cluster: Cluster, *, after: Sequence[pulumi.Resource]
) -> Platform:
    """Make the one provider of all Kubernetes objects.

    It depends on the cluster with its access entries and on `after`, which holds the nodes: on destroy all of these
    stay until the last object is gone, so Kubernetes can be reached and can finish what it has to.
    """
    own = stack.cluster.existing is None
    provider = kubernetes.Provider(
        stack.name,
        kubeconfig=cluster.kubeconfig,
        # A kubeconfig that changes (a new certificate, another profile) must not replace every object.
        cluster_identifier=stack.name,
        enable_server_side_apply=True,
        # `pulumi up` overwrites fields that were changed with kubectl, instead of reporting a conflict.
        enable_patch_force=True,
        # A `pulumi up` that was killed may have created objects without recording them. The next one adopts them.
        # On a cluster of others an object of the same name may be theirs: it is an error, since a destroy deletes it.
        upsert_existing_objects=own,
        opts=pulumi.ResourceOptions(depends_on=[cluster, *after]),
    )
    return Platform(cluster, [provider, account.provider], cluster_stays=not own)
