"""What AWS says of a region and of the account in it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.preflight.cluster import Cluster, Inside
from infra.preflight.dataset import Found
from infra.preflight.login import Login
from infra.preflight.roles.boundary import Boundary
from infra.preflight.roles.given import Given
from infra.preflight.support import Support
from infra.preflight.vpc import Vpc
from infra.preflight.vpc.files import Files
from infra.preflight.vpc.lustre import Lustre
from settings.hardware import InstanceType


@dataclass(frozen=True)
class Count:
    """How many things there are in the region, how many of them are the stack's, and how many there may be."""

    used: int
    own: int
    limit: float


ENABLED = "Enabled"
"""The state of a KMS key that can be used."""


@dataclass(frozen=True)
class Key:
    """A KMS key, as far as AWS describes it."""

    arn: str
    customer: bool | None
    """Whether it is a customer's; None if AWS did not say."""
    state: str = ENABLED
    """KMS's word for it; empty if there is no such key."""
    symmetric: bool = True
    """Whether one secret encrypts and decrypts, as AWS's services need it."""


@dataclass(frozen=True)
class Region:
    """The answers to the questions of `lookup`.

    Attributes:
        zones: the zones in which EKS can place a control plane, sorted, also those in which AWS has trouble now.
        offered: pairs of an instance type and a zone that has it: the types that the settings name, and others of
            their families.
        login: of the `aws` that the kubeconfig starts.
        types: what AWS says of the types that the settings name, by name; only those that the region has.
        quotas: vCPUs by the quota's code.
        exists: whether the stack was made before: there is its own VPC, or its cluster in an existing one, or on an
            existing cluster its nodes.
        unread: why a quota could not be read, by its code.
        support: of the Kubernetes version; None if EKS did not say.
        counts: what there is of each thing that a quota counts one by one, by the quota's code.
        dataset: what is at the dataset's address; None if it comes with the trainer.
        disk_key: `nodeDiskKeyArn`, else the account's default EBS key; None if AWS did not say.
        data_key: `dataKeyArn`; None without it.
        cluster: the existing cluster that `clusterName` names; None without one.
        inside: what is on the cluster, the existing one or the stack's own; None while that can't be asked.
        files: the existing file system that `fileSystemId` names; None without one.
        lustre: the file system of FSx for Lustre that `lustre` names; None without one.
        role: ARN of the role of the stack's cluster, or of its nodes on an existing one; None if there is none yet.
        boundary: the policy that `permissionsBoundary` names; None without one.
        roles: those in `roleArns`, by their names there.
        auto_scaling_role: whether the account has the role of EC2 Auto Scaling; asked only with `nodeDiskKeyArn`.
        vpc: the existing VPC that `vpcId` names; None without one.
    """

    name: str
    zones: tuple[str, ...]
    offered: frozenset[tuple[str, str]]
    types: Mapping[str, InstanceType]
    login: Login
    quotas: Mapping[str, float] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    exists: bool = False
    support: Support | None = None
    counts: Mapping[str, Count] = field(default_factory=dict)
    dataset: Found | None = None
    disk_key: Key | None = None
    data_key: Key | None = None
    auto_scaling_role: bool = True
    vpc: Vpc | None = None
    cluster: Cluster | None = None
    inside: Inside | None = None
    files: Files | None = None
    lustre: Lustre | None = None
    role: str | None = None
    boundary: Boundary | None = None
    roles: Mapping[str, Given] = field(default_factory=dict)

    def zones_with(self, type_: str) -> list[str]:
        """Return the zones that have an instance type."""
        return sorted(zone for name, zone in self.offered if name == type_)
