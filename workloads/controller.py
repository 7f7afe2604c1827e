"""The ElasticJob controller and its definition, from the manifests in `tidewater.elasticjob.install`.

Its sources go into a ConfigMap as they are in this checkout, so `pulumi up` after a change replaces its pods one by
one. Training goes on meanwhile, also without any controller: then lost workers are not replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pulumi

from tidewater.contract import labels
from tidewater.contract.controller_program import Quota
from tidewater.elasticjob import install
from workloads import objects
from workloads.manifests import SYSTEM_NODES, Manifest
from workloads.namespace import pull_secret, with_credentials

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class ControllerArgs:
    """How the controller runs.

    Attributes:
        image: with Python.
        priority_class: of its pods.
        fixed_nodes: whether no nodes come for pods that wait.
        namespaces: that it serves; none for all.
        quotas: of namespaces that lend each other what they leave.
        worker_size: what counts as one worker in a quota.
        pull_secret: Docker's configuration with the credentials of registries.
    """

    image: str
    priority_class: str
    fixed_nodes: bool
    namespaces: tuple[str, ...] = ()
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    worker_size: Mapping[str, str] = field(default_factory=dict)
    pull_secret: str = field(default="", repr=False)


def installation(args: ControllerArgs) -> install.Installation:
    """Return how the stack installs the controller: two replicas on the system nodes."""
    return install.Installation(
        program=install.Program.read(ROOT),
        image=args.image,
        node_selector=SYSTEM_NODES,
        priority_class=args.priority_class,
        fixed_nodes=args.fixed_nodes,
        namespaces=args.namespaces,
        quotas=args.quotas,
        worker_size=args.worker_size,
    )


class Controller(pulumi.ComponentResource):
    """The definition of ElasticJob, then the controller. It is ready when both replicas are.

    ElasticJobs depend on it: they are made after it and deleted before it.
    """

    def __init__(self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Controller", name, None, opts)
        wanted = installation(args)

        def register(manifest: Manifest, *after: pulumi.Resource) -> pulumi.CustomResource:
            # The ConfigMap's name says what is in it. Its bytes also depend on the library that compresses them here.
            ignored = ["binaryData"] if manifest["kind"] == "ConfigMap" else []
            opts = pulumi.ResourceOptions(parent=self, depends_on=list(after), ignore_changes=ignored)
            return objects.register(with_credentials(_ours(manifest), args.pull_secret), opts=opts)

        definition = register(install.definition())
        space = register(install.namespace(wanted))
        around: list[pulumi.Resource] = [register(manifest, space) for manifest in install.surroundings(wanted)]
        after = pulumi.ResourceOptions(parent=self, depends_on=[space])
        around += pull_secret(wanted.namespace, args.pull_secret, after)
        register(install.deployment(wanted), definition, *around)
        self.register_outputs({})


def _ours(manifest: Manifest) -> Manifest:
    """Return the manifest with the labels that all objects of the stack have."""
    metadata = manifest["metadata"]
    ours = {labels.PART_OF: labels.APPLICATION, labels.MANAGED_BY: "pulumi"}
    return {**manifest, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **ours}}}
