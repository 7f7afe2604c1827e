"""What AWS says of a region and of the account in it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.preflight.support import Support
from settings.hardware import InstanceType


@dataclass(frozen=True)
class Region:
    """The answers to the questions of `lookup`.

    Attributes:
        zones: the zones in which EKS can place a control plane, sorted, also those in which AWS has trouble now.
        offered: pairs of an instance type and a zone that has it: the types that the settings name, and others of
            their families.
        types: what AWS says of the types that the settings name, by name; only those that the region has.
        quotas: vCPUs by the quota's code.
        vpcs: the VPCs of the stack; not asked for if its Kubernetes API can be reached over the internet.
        unread: why a quota could not be read, by its code.
        support: of the Kubernetes version; None if EKS did not say.
    """

    name: str
    zones: tuple[str, ...]
    offered: frozenset[tuple[str, str]]
    types: Mapping[str, InstanceType]
    quotas: Mapping[str, float] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    vpcs: tuple[str, ...] = ()
    support: Support | None = None

    def zones_with(self, type_: str) -> list[str]:
        """Return the zones that have an instance type."""
        return sorted(zone for name, zone in self.offered if name == type_)
