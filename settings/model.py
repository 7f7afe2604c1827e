"""The configuration of a stack as a tree of frozen dataclasses. `parse` makes it; `infra` and `workloads` read it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pulumi

from settings.existing import ExistingCluster, Lustre
from settings.hardware import DISK_IOPS, DISK_THROUGHPUT, InstanceType
from settings.images import ImageCache, Images
from settings.nodes import Nodes, Pool, Surge, Workers
from settings.teams import Team
from settings.vpcs import Network, Proxy, Subnet
from tidewater.contract import devices, metrics
from tidewater.elasticjob.install.pods import NAMESPACE
from tidewater.elasticjob.names import CRD_NAME
from tidewater.project.folder import Code
from tidewater.project.lock import Packages

PROJECT = "tidewater"

MAX_NAME_LENGTH = 32
"""Limit of `tidewater-<stack>`. IAM allows names of 64 characters and S3 of 63; the program and Pulumi add up to 30."""

MAX_JOB_NAME_LENGTH = 40
"""Pods and a Service are named after the job. Kubernetes allows names of 63 characters."""

MAX_TAGS = 7
"""Limit of the key `tags`: S3 allows 10 tags on an object, default tags included, and the program sets 3.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-tagging.html
https://github.com/hashicorp/terraform-provider-aws/issues/19895"""


class ConfigurationError(pulumi.RunError):
    """The stack's configuration is wrong; the message lists every mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = tuple(mistakes)
        count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        listed = "".join(f"\n  {mistake}" for mistake in mistakes)
        super().__init__(f"the configuration has {count}; nothing was changed:{listed}")


@dataclass(frozen=True)
class Roles:
    """What all IAM roles of the stack have in common."""

    path: str
    """The path in their ARNs; `/` for none."""
    boundary: str
    """ARN of the policy that limits what they may do; empty for none."""
    arns: Mapping[str, str] = field(default_factory=dict)
    """Those of roles that were there before, by `Settings.role_names`; empty if the stack makes its roles."""

    @property
    def of_nodes(self) -> tuple[str, ...]:
        """Return the ARNs of given roles of nodes, which get access entries."""
        return tuple(arn for name, arn in self.arns.items() if name in ("node", "surge-node"))


@dataclass(frozen=True)
class Cluster:
    """The EKS control plane and who may reach it."""

    version: str
    addons: Mapping[str, str]
    """The version of each addon of EKS."""
    public_access_cidrs: tuple[str, ...]
    admin_arns: tuple[str, ...]
    log_retention_days: int
    existing: ExistingCluster | None = None
    """None if the stack makes a cluster of its own."""
    default_priority: str = ""
    """The PriorityClass of pods that name none; empty if there is none, and until the cluster is asked."""


@dataclass(frozen=True)
class Disk:
    """The root disk of a node, a gp3 volume: images, and what pods write outside of volumes. Throughput in MiB/s."""

    gib: int
    iops: int = DISK_IOPS.start
    throughput: int = DISK_THROUGHPUT.start


@dataclass(frozen=True)
class FileThroughput:
    """How much the file system transfers, and how AWS bills that."""

    mode: str
    """EFS' word for it: elastic, bursting or provisioned."""
    mibps: int | None = None
    """In MiB/s, if it is provisioned."""


@dataclass(frozen=True)
class Machines:
    """What the worker nodes have in common, both the node group's and Karpenter's."""

    zones: int | tuple[str, ...]
    """How many of the stack's zones they are in, or which."""
    update_strategy: str
    """DEFAULT or MINIMAL: whether EKS starts a new node before it ends the old one, or after."""
    disk: Disk
    placement_group: bool
    """Whether their instances are near each other in one zone."""
    instance_store: bool
    """Whether images and scratch space are on the NVMe disks that belong to the instances."""
    efa: bool
    """Whether they have all Elastic Fabric Adapters that their types can have."""


@dataclass(frozen=True)
class Dataset:
    """What to train on: a dataset that comes with the trainer, an archive at `uri`, or a folder in S3 or on Lustre."""

    name: str
    uri: str | None = None
    mounted: bool = False
    """Whether `uri` is a folder that workers read in S3; else the dataset job puts the data on the file system."""
    key_arn: str = ""
    """Of the KMS key that the objects at `uri` are encrypted with, if it is a customer's."""
    path: str = ""
    """The folder on Lustre in which workers read it; empty for any other."""

    @classmethod
    def of(cls, text: str) -> Dataset:
        """Return the dataset that the config key names. Directories are named after the data's address."""
        if text.startswith("/"):
            return cls("lustre", path=text)
        if "://" not in text:
            return cls(text)
        mounted = text.endswith("/")
        kind = "folder" if mounted else "archive"
        return cls(f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:10]}", text, mounted)

    @property
    def folder(self) -> tuple[str, str]:
        """Return the bucket and the prefix of a mounted dataset; the prefix ends with a slash."""
        bucket, _, prefix = (self.uri or "").removeprefix("s3://").partition("/")
        return bucket, prefix


@dataclass(frozen=True)
class Checkpoints:
    """Where the job's checkpoints go, and how many are kept."""

    efs: bool
    s3: bool
    keep: int
    folder: str = ""
    """The folder on Lustre for the checkpoints of all jobs; empty for the other places."""

    @classmethod
    def of(cls, places: str, keep: int) -> Checkpoints:
        """Return the places for the config's `efs`, `s3`, `both` or a folder on Lustre."""
        if places.startswith("/"):
            return cls(efs=False, s3=False, keep=keep, folder=places)
        return cls(efs=places != "s3", s3=places != "efs", keep=keep)


@dataclass(frozen=True)
class Training:
    """What runs on the cluster."""

    namespace: str
    job: str
    etcd_members: int
    dataset: Dataset
    dataset_minutes: int
    """How long the dataset job may take."""
    script: Path | None
    """The user's own training script, if it is a single file. Without it and `code`, that of the project runs."""
    code: Code | None
    """The folder with the user's own training script."""
    packages: Packages | None
    """None if the image has all that the script imports."""
    trainer_args: tuple[str, ...]
    secret_args: bool
    """Whether `trainer_args` are encrypted in Pulumi's state; pods show them to those who may read these."""
    policy_arns: tuple[str, ...]
    """IAM policies that the pods get in addition."""
    checkpoints: Checkpoints
    log_days: int
    """How long the logs of jobs' pods are kept on the file system; 0 if they go with the pods."""
    images: Images
    pull_secret: str = field(repr=False)
    """Docker's configuration with the credentials of registries, as JSON: a secret. Empty without any."""
    proxy: Proxy | None = None
    """None if nodes and pods reach the internet without one. Until AWS was asked, it lacks the networks of the VPC."""

    @property
    def proxy_variables(self) -> dict[str, str]:
        """Return the variables with which programs on nodes and in pods find the proxy."""
        return self.proxy.variables if self.proxy else {}

    def with_direct(self, *more: str) -> Training:
        """Return the settings with more that is reached without the proxy, if there is one."""
        return replace(self, proxy=self.proxy and self.proxy.with_direct(*filter(None, more)))


@dataclass(frozen=True)
class Monitoring:
    """Who reads the metrics, and what measures the GPUs."""

    managed: bool
    """Whether Amazon's collector reads them; else a Prometheus on the cluster."""
    image: str
    """Of that Prometheus."""
    gpu_exporter: str
    """Image of DCGM exporter, which runs where workers have GPUs."""


@dataclass(frozen=True)
class Settings:
    """The whole configuration of one stack."""

    stack: str
    region: str
    profile: str
    allowed_accounts: tuple[str, ...]
    """The accounts in which the stack may be; empty for any."""
    tags: Mapping[str, str]
    protect: bool
    roles: Roles
    network: Network
    cluster: Cluster
    node_image: str
    """Release of EKS' AL2023 images, for example v20260903; of all nodes."""
    node_disk_key: str
    """ARN of the KMS key of all nodes' disks; empty for the account's default EBS key."""
    data_key: str
    """ARN of the KMS key of all that the stack stores; empty if it makes one."""
    file_throughput: FileThroughput
    file_iam: bool
    """Whether only the nodes' roles may mount the file system; else every client that reaches it over TLS."""
    teams: tuple[Team, ...]
    file_system: str
    """Id of the file system that was there before; empty if the stack makes one."""
    lustre: Lustre | None
    """None without an FSx for Lustre file system."""
    system: Nodes
    workers: Workers
    machines: Machines
    surge: Surge | None
    """None if the worker node group has all worker nodes."""
    pools: tuple[Pool, ...]
    """Further nodes, for jobs that ask for them by name."""
    training: Training
    monitoring: Monitoring | None
    """None if the metrics are not read."""
    image_cache: ImageCache | None
    """None if nodes pull images from where they are published."""

    @property
    def name(self) -> str:
        """Return the name with which all names begin; that of the cluster, if the stack makes one."""
        return f"{PROJECT}-{self.stack}"

    @property
    def role_names(self) -> tuple[str, ...]:
        """Return the short names of the IAM roles that a stack of this config uses, as `roleArns` has them."""
        own_cluster, karpenter = self.cluster.existing is None, self.surge is not None
        used = {
            "cluster": own_cluster,
            "node": True,
            "efs-csi": own_cluster,
            "trainer": True,
            "s3-csi": self.training.dataset.mounted,
            "flow-logs": self.network.flow_log_days > 0,
            **{team.role: True for team in self.teams},
            "surge-node": karpenter,
            "karpenter": karpenter,
        }
        return tuple(name for name, is_used in used.items() if is_used)

    @property
    def cluster_name(self) -> str:
        """Return the name of the cluster that the stack is on."""
        return self.cluster.existing.name if self.cluster.existing else self.name

    @property
    def efa_cards(self) -> range:
        """Return the network cards of a worker node that have an Elastic Fabric Adapter. AWS must have been asked."""
        return self.workers.nodes.smallest.efa_cards if self.machines.efa else range(0)

    @property
    def surge_vcpus(self) -> int:
        """Return the most vCPUs of a node that Karpenter brings without a list of types. AWS must have been asked."""
        core = self.workers.nodes
        usual = max(2 * core.smallest.vcpus, *(kind.vcpus for kind in core.hardware))
        return (self.surge.max_vcpus if self.surge else 0) or usual

    @property
    def instance_types(self) -> dict[str, tuple[str, ...]]:
        """Return the instance types of all nodes, by the key that names them."""
        groups = {"systemInstanceTypes": self.system.instance_types, "instanceTypes": self.workers.nodes.instance_types}
        return {**groups, **{pool.key: pool.instance_types for pool in self.brought}}

    @property
    def brought(self) -> tuple[Pool, ...]:
        """Return all that Karpenter may bring: the surge and the pools."""
        return (*([self.surge] if self.surge else []), *self.pools)

    @property
    def gpu_pools(self) -> tuple[str, ...]:
        """Return the names of the pools with GPUs. AWS must have been asked."""
        return tuple(pool.name for pool in self.pools if pool.smallest.gpus)

    @property
    def has_gpus(self) -> bool:
        """Return whether pods get GPUs, on the stack's own nodes or in a pool. AWS must have been asked."""
        return self.workers.gpus > 0 or bool(self.gpu_pools)

    def with_hardware(self, found: Mapping[str, InstanceType]) -> Settings:
        """Return the settings with what AWS says of the instance types, by their names."""
        workers = replace(self.workers, nodes=self.workers.nodes.with_hardware(found))
        pools = tuple(replace(each, hardware=tuple(found[name] for name in each.instance_types)) for each in self.pools)
        return replace(self, system=self.system.with_hardware(found), workers=workers, pools=pools)

    def with_vpc(self, cidrs: tuple[str, ...], subnets: tuple[Subnet, ...]) -> Settings:
        """Return the settings with what AWS says of the existing VPC."""
        if self.network.existing is None:
            return self
        existing = replace(self.network.existing, cidrs=cidrs, subnets=subnets)
        zones = tuple(dict.fromkeys(subnet.zone for subnet in subnets))
        network = replace(self.network, existing=existing, zones=zones)
        # Sorted, since another order of AWS's would replace all nodes.
        return replace(self, network=network, training=self.training.with_direct(*sorted(cidrs)))

    @property
    def names_on_cluster(self) -> list[tuple[str, str]]:
        """Return the kinds and names of what the stack makes on any cluster, and with which others would be deleted."""
        found = [("Namespace", NAMESPACE), ("CustomResourceDefinition", CRD_NAME)]
        if self.workers.gpus or self.pools:  # which pools have GPUs, AWS says at the same time
            found.append(("Namespace", devices.NAMESPACE))
        if self.monitoring and not self.monitoring.managed:
            found.append(("Namespace", metrics.NAMESPACE))
        return found

    def with_cluster(self, found: ExistingCluster) -> Settings:
        """Return the settings with what AWS says of the existing cluster."""
        training = self.training.with_direct(found.service_range)
        return replace(self, cluster=replace(self.cluster, existing=found), training=training)

    def with_images(self, name: Callable[[str], str]) -> Settings:
        """Return the settings with all images under the names that `name` returns for theirs."""
        surge, monitoring = self.surge, self.monitoring
        return replace(
            self,
            training=replace(self.training, images=self.training.images.named(name)),
            surge=surge and replace(surge, image=name(surge.image)),
            monitoring=monitoring
            and replace(monitoring, image=name(monitoring.image), gpu_exporter=name(monitoring.gpu_exporter)),
        )

    @property
    def all_tags(self) -> dict[str, str]:
        """Return the tags of every AWS resource."""
        return {**self.tags, **self.own_tags}

    @property
    def own_tags(self) -> dict[str, str]:
        """Return the tags that the program sets, which tell the stack's resources from others."""
        return {"Project": PROJECT, "Stack": self.stack, "ManagedBy": "pulumi"}
