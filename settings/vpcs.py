"""The part of `model` for the VPC: one that the stack makes, or one that is there."""

from __future__ import annotations

from dataclasses import dataclass


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
