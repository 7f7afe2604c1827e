"""The part of `model` for the VPC: one that the stack makes, or one that is there; and the way to the internet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tidewater.contract.stack import proxy_variables

DIRECT = (
    *("localhost", "127.0.0.1"),
    "169.254.169.254",  # the metadata service, from which a node has its role
    "169.254.170.23",  # the Pod Identity Agent, from which a pod has its role
    *("172.20.0.0/16", "10.100.0.0/16"),  # EKS gives a cluster one of them for its services
    *(".svc", ".cluster.local", ".internal"),  # names of services, of pods, and of nodes
    *(".eks.amazonaws.com", ".eks.amazonaws.com.cn"),  # API servers
)
"""What nodes and pods reach without a proxy, in any stack. Not every program knows what a network is, such as Python's
urllib and boto3, so what has a name or one address is listed by that.
https://repost.aws/knowledge-center/eks-http-proxy-containerd-automation
https://docs.aws.amazon.com/eks/latest/userguide/pod-identities.html#pod-id-considerations
https://docs.aws.amazon.com/eks/latest/APIReference/API_KubernetesNetworkConfigRequest.html"""


@dataclass(frozen=True)
class Subnet:
    """A subnet that was there before the stack, and its zone."""

    id: str
    zone: str


@dataclass(frozen=True)
class ExistingVpc:
    """A VPC that was there before the stack, and the subnets in it that the stack uses."""

    id: str
    subnet_ids: tuple[str, ...]
    cidrs: tuple[str, ...] = ()
    """The VPC's ranges; empty until AWS is asked. See `Settings.with_vpc`."""
    subnets: tuple[Subnet, ...] = ()
    """Those of `subnet_ids`, in their order; empty until AWS is asked."""


@dataclass(frozen=True)
class Proxy:
    """The HTTP proxy through which nodes and pods reach the internet.

    Attributes:
        url: `http://HOST:PORT`.
        direct: names, networks and addresses that they reach without it.
    """

    url: str
    direct: tuple[str, ...]

    @property
    def host(self) -> str:
        """Return its name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Return its port."""
        return urlsplit(self.url).port or 0

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables with which programs find it."""
        return proxy_variables(self.url, ",".join(self.direct))

    def serves(self, host: str) -> bool:
        """Return whether the host of this name is reached through it."""
        return not any(f".{host}".endswith(f".{each.removeprefix('.')}") for each in self.direct)

    def with_direct(self, *direct: str) -> Proxy:
        """Return the proxy with more that is reached without it."""
        return replace(self, direct=tuple(dict.fromkeys((*self.direct, *direct))))


@dataclass(frozen=True)
class Network:
    """The VPC. `zones` is a count of zones, which are chosen once and kept, or their names."""

    cidr: str
    """Of the stack's own VPC; empty if it is in an existing one."""
    zones: int | tuple[str, ...]
    """In an existing VPC those of its subnets, once AWS was asked."""
    nat_per_zone: bool
    flow_log_days: int
    """How long CloudWatch keeps the VPC's flow logs; 0 if there are none."""
    existing: ExistingVpc | None = None
    """None if the stack makes a VPC of its own."""

    @property
    def cidrs(self) -> tuple[str, ...]:
        """Return the ranges of the VPC. For those of an existing one AWS must have been asked."""
        return self.existing.cidrs if self.existing else (self.cidr,)

    @property
    def zone_count(self) -> int:
        """Return the number of zones."""
        return self.zones if isinstance(self.zones, int) else len(self.zones)
