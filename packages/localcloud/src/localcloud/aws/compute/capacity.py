"""Which instance types have no capacity, in which zones and markets, and what EC2 says about it. Pure functions.

    shortage = parse({"types": ["m5.large", "c5.*"], "zone": "us-west-2a"}, known_types, known_zones)
    if covers([shortage], "c5.xlarge", "us-west-2a", SPOT):
        message = refusal(...)

The error: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html#troubleshooting-launch-capacity
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from localcloud.errors import CloudError

CODE: Final = "InsufficientInstanceCapacity"
UNSUPPORTED: Final = "Unsupported"
SPOT: Final = "spot"
ON_DEMAND: Final = "on-demand"
MARKETS: Final = (SPOT, ON_DEMAND)


class NotUnderstood(CloudError):
    """The types, the zone or the market of a shortage are wrong."""


@dataclass(frozen=True)
class Shortage:
    """What there is no capacity of.

    Args:
        types: Names of instance types; `*` and `?` are wildcards.
        zone: None for every zone.
        market: `spot` or `on-demand`; None for both.
    """

    types: tuple[str, ...]
    zone: str | None = None
    market: str | None = None

    def covers(self, instance_type: str, zone: str, market: str) -> bool:
        """Return whether there is no capacity for such an instance."""
        return (
            self.zone in (None, zone)
            and self.market in (None, market)
            and any(fnmatchcase(instance_type, pattern) for pattern in self.types)
        )


def parse(given: Mapping[str, Any], known_types: Collection[str], known_zones: Collection[str]) -> Shortage:
    """Return the shortage that a command asks for.

    Raises:
        NotUnderstood: A type matches nothing, or the zone or the market doesn't exist.
    """
    types, zone, market = tuple(given.get("types") or ()), given.get("zone"), given.get("market")
    if not types:
        raise NotUnderstood("name at least one instance type; '*' means every type")
    for name in types:
        if not any(fnmatchcase(known, name) for known in known_types):
            raise NotUnderstood(f"there is no instance type {name!r} in this region")
    if zone is not None and zone not in known_zones:
        raise NotUnderstood(f"there is no zone {zone!r}; the zones are {', '.join(sorted(known_zones))}")
    if market not in (None, *MARKETS):
        raise NotUnderstood(f"market {market!r} is none of {', '.join(MARKETS)}")
    return Shortage(types, zone, market)


def covers(shortages: Iterable[Shortage], instance_type: str, zone: str, market: str) -> bool:
    """Return whether one of the shortages covers such an instance."""
    return any(each.covers(instance_type, zone, market) for each in shortages)


def refusal(
    shortages: Sequence[Shortage], instance_type: str, zone: str, market: str, zones: Iterable[str]
) -> str | None:
    """Return EC2's message if there is no capacity for the instance, else None.

    Args:
        zones: The zones that offer the instance type.
    """
    if not covers(shortages, instance_type, zone, market):
        return None
    if market == SPOT:
        return "There is no Spot capacity available that matches your request."
    others = [other for other in sorted(zones) if not covers(shortages, instance_type, other, market)]
    message = (
        f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested "
        f"({zone}). Our system will be working on provisioning additional capacity."
    )
    if not others:
        return message
    return (
        f"{message} You can currently get {instance_type} capacity by not specifying an Availability Zone in your "
        f"request or choosing {', '.join(others)}."
    )


def unsupported(instance_type: str, zone: str, zones: Iterable[str]) -> str:
    """Return EC2's message for an instance type that the zone doesn't offer; `zones` are those that do."""
    return (
        f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone "
        f"({zone}). Please retry your request by not specifying an Availability Zone or choosing "
        f"{', '.join(sorted(zones))}."
    )


def described(shortage: Shortage) -> str:
    """Return the shortage as a line for people."""
    where = f"in {shortage.zone}" if shortage.zone else "in every zone"
    markets = {SPOT: "Spot", ON_DEMAND: "On-Demand", None: "Spot and On-Demand"}
    types = ", ".join(shortage.types) if shortage.types != ("*",) else "every instance type"
    return f"no capacity for {types} {where} ({markets[shortage.market]})"
