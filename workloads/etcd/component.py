"""etcd as a component of the stack."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from workloads import objects
from workloads.etcd import manifests
from workloads.namespace import with_credentials


@dataclass(frozen=True)
class EtcdArgs:
    """The training settings, which name the namespace, the image and the number of members; and their priority."""

    training: settings.Training
    priority_class: str
    mounts: pulumi.ResourceOptions
    """Of what mounts the file system."""


class Etcd(pulumi.ComponentResource):
    """The members and the services in front of them."""

    def __init__(self, name: str, args: EtcdArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Etcd", name, None, opts)
        namespace = args.training.namespace

        def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(parent=self, depends_on=list(resources))

        child = after()
        peers = objects.register(manifests.peers_service_manifest(namespace), opts=child)
        program = objects.register(manifests.program_manifest(namespace), opts=child)
        objects.register(manifests.network_policy_manifest(namespace), opts=child)
        objects.register(manifests.disruption_budget_manifest(namespace), opts=child)
        members = args.training.etcd_members
        # Members of the old number must have ended before those of the new one begin: new ones would join them.
        own = pulumi.ResourceOptions(parent=self, depends_on=[peers, program], replace_on_changes=["spec.replicas"])
        # Three mount no volume: with another one they stay as they are.
        mounts = args.mounts if members == 1 else pulumi.ResourceOptions()
        pods = manifests.stateful_set_manifest(
            namespace,
            members=members,
            image=args.training.images.etcd,
            python_image=args.training.images.controller,
            priority_class=args.priority_class,
        )
        stateful_set = objects.register(
            with_credentials(pods, args.training.pull_secret), opts=pulumi.ResourceOptions.merge(mounts, own)
        )
        # Pulumi waits until a Service has a ready pod.
        objects.register(manifests.client_service_manifest(namespace), opts=after(stateful_set))
        self.register_outputs({"endpoint": manifests.endpoint(namespace)})
