"""The configuration of a stack as a tree of frozen dataclasses. `parse` makes it; `infra` and `workloads` read it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pulumi

from settings.hardware import InstanceType, Size, smallest

PROJECT = "tidewater"

MAX_NAME_LENGTH = 32
"""Limit of `tidewater-<stack>`. IAM allows names of 64 characters and S3 of 63; the program and Pulumi add up to 30."""

MAX_JOB_NAME_LENGTH = 40
"""Pods and a Service are named after the job. Kubernetes allows names of 63 characters."""


class ConfigurationError(pulumi.RunError):
    """The stack's configuration is wrong; the message lists every mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = tuple(mistakes)
        count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        listed = "".join(f"\n  {mistake}" for mistake in mistakes)
        super().__init__(f"the configuration has {count}; nothing was changed:{listed}")


@dataclass(frozen=True)
class Network:
    """The VPC. `zones` is a count, or the names of the zones."""

    cidr: str
    zones: int | tuple[str, ...]
    nat_per_zone: bool

    @property
    def zone_count(self) -> int:
        """Return the number of zones."""
        return self.zones if isinstance(self.zones, int) else len(self.zones)


@dataclass(frozen=True)
class Cluster:
    """The EKS control plane and who may reach it."""

    version: str
    public_access_cidrs: tuple[str, ...]
    admin_arns: tuple[str, ...]
    log_retention_days: int


@dataclass(frozen=True)
class Nodes:
    """A group of nodes: how many now, at least and at most, and of which types."""

    desired: int
    minimum: int
    maximum: int
    instance_types: tuple[str, ...]
    capacity_type: str = "ON_DEMAND"
    hardware: tuple[InstanceType, ...] = ()
    """What AWS says of `instance_types`; empty until it is asked. See `Settings.with_hardware`."""

    @property
    def smallest(self) -> Size:
        """Return what every node of the group has at least. AWS must have been asked."""
        return smallest(self.hardware)

    def with_hardware(self, found: Mapping[str, InstanceType]) -> Nodes:
        """Return the group with what AWS says of its types."""
        return replace(self, hardware=tuple(found[name] for name in self.instance_types))


@dataclass(frozen=True)
class Workers:
    """The training workers."""

    count: int
    """0 if the job is suspended."""
    sized_by_pulumi: bool
    """Whether `pulumi up` sets the number of a running job; else `kubectl scale` or an HPA sets it in the cluster."""
    minimum: int
    """The workers that the core has nodes for; 0 if it has none."""
    maximum: int
    gpus: int
    per_node: int
    mixed_gpu_models: bool
    """Whether nodes with different GPUs may train together."""
    nodes: Nodes
    """The worker node group. With a `Surge` it is the core: the nodes for `minimum` workers, always On-Demand."""


@dataclass(frozen=True)
class Window:
    """Some hours of every week, in UTC."""

    day: str
    """The weekday on which it begins, as in cron: `sun`, `mon`, …"""
    hour: int
    minute: int
    hours: int
    """Its length, 1 to 24."""


@dataclass(frozen=True)
class Surge:
    """The nodes above the core, which Karpenter starts for pending workers and ends when they are empty."""

    capacity_type: str
    instance_types: tuple[str, ...]
    """Empty: any type like the smallest of the core's."""
    maximum: int
    """The number of nodes for the workers between `Workers.minimum` and `Workers.maximum`."""
    window: Window | None
    """When nodes that no longer match the configuration may be replaced; None: never."""
    charts: str
    """An `oci://` address or a folder that has the charts `karpenter` and `karpenter-crd`."""
    image: str
    """Image of Karpenter's controller."""
    ami_version: str
    """Release of the AL2023 EKS image, for example v20260304."""


@dataclass(frozen=True)
class Dataset:
    """What to train on: a dataset that comes with the trainer, or an archive at `uri`."""

    name: str
    uri: str | None = None

    @classmethod
    def of(cls, text: str) -> Dataset:
        """Return the dataset that the config key names. An archive's directory is named after its address."""
        if "://" not in text:
            return cls(text)
        return cls(f"archive-{hashlib.sha256(text.encode()).hexdigest()[:10]}", text)


@dataclass(frozen=True)
class Images:
    """Container images."""

    trainer: str
    fetch: str
    etcd: str
    controller: str


@dataclass(frozen=True)
class Checkpoints:
    """Where the job's checkpoints go, and how many are kept."""

    efs: bool
    s3: bool
    keep: int

    @classmethod
    def of(cls, places: str, keep: int) -> Checkpoints:
        """Return the places for the config's `efs`, `s3` or `both`."""
        return cls(efs=places != "s3", s3=places != "efs", keep=keep)


@dataclass(frozen=True)
class Training:
    """What runs on the cluster."""

    namespace: str
    job: str
    etcd_members: int
    dataset: Dataset
    script: Path | None
    """The user's own training script; None for the one that comes with the project."""
    trainer_args: tuple[str, ...]
    checkpoints: Checkpoints
    images: Images


@dataclass(frozen=True)
class Settings:
    """The whole configuration of one stack."""

    stack: str
    region: str
    profile: str
    tags: Mapping[str, str]
    protect: bool
    network: Network
    cluster: Cluster
    system: Nodes
    workers: Workers
    surge: Surge | None
    """None if the worker node group has all worker nodes."""
    training: Training

    @property
    def name(self) -> str:
        """Return the name of the cluster, with which all other names begin."""
        return f"{PROJECT}-{self.stack}"

    @property
    def instance_types(self) -> dict[str, tuple[str, ...]]:
        """Return the instance types of all nodes, by the key that names them."""
        surge = {"surgeInstanceTypes": self.surge.instance_types} if self.surge else {}
        groups = {"systemInstanceTypes": self.system.instance_types, "instanceTypes": self.workers.nodes.instance_types}
        return {**groups, **surge}

    def with_hardware(self, found: Mapping[str, InstanceType]) -> Settings:
        """Return the settings with what AWS says of the instance types, by their names."""
        workers = replace(self.workers, nodes=self.workers.nodes.with_hardware(found))
        return replace(self, system=self.system.with_hardware(found), workers=workers)

    @property
    def all_tags(self) -> dict[str, str]:
        """Return the tags of every AWS resource."""
        return {**self.tags, "Project": PROJECT, "Stack": self.stack, "ManagedBy": "pulumi"}
