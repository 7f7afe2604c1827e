"""Refuse launches for which a zone has no capacity, or not the type: RunInstances, fleets, Auto Scaling, node groups.

    shortages.add(backend, {"types": ["m5.large"]})     # backend: moto's EC2 of one account and region
    shortages.refuse(backend, "m5.large", "us-west-2a", "spot")

The shortages belong to the account and region, like its instances, and end with the daemon like these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localcloud.aws.compute import capacity
from localcloud.aws.compute.capacity import Shortage

_ATTRIBUTE = "_localcloud_shortages"


def shown(backend: Any) -> Sequence[Shortage]:
    """Return the shortages of an account and region."""
    found: Sequence[Shortage] = vars(backend).get(_ATTRIBUTE, ())
    return found


def add(backend: Any, given: Mapping[str, Any]) -> None:
    """Take the capacity for some instance types away.

    Raises:
        NotUnderstood: See `capacity.parse`.
    """
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    zones = [zone.name for zone in backend.describe_availability_zones()]
    shortage = capacity.parse(given, INSTANCE_TYPES.keys(), zones)
    # A new tuple, because launches read it in other threads.
    setattr(backend, _ATTRIBUTE, (*(each for each in shown(backend) if each != shortage), shortage))


def restore(backend: Any) -> None:
    """Give all capacity back."""
    setattr(backend, _ATTRIBUTE, ())


def refuse(backend: Any, instance_type: str, zone: str | None, market: str) -> None:
    """Raise EC2's error if a zone doesn't offer an instance type, or has no capacity for it.

    Args:
        zone: None if the launch names none; then it is the region's first one, as in moto.
    """
    from moto.ec2.exceptions import EC2ClientError

    zones = _zones(backend, instance_type)
    if zone is not None and zones and zone not in zones:
        raise EC2ClientError(capacity.UNSUPPORTED, capacity.unsupported(instance_type, zone, zones))
    message = capacity.refusal(shown(backend), instance_type, zone or f"{backend.region_name}a", market, zones)
    if message is not None:
        raise EC2ClientError(capacity.CODE, message)


def _zones(backend: Any, instance_type: str) -> list[str]:
    found = backend.describe_instance_type_offerings("availability-zone", {"instance-type": [instance_type]})
    return [str(offering["Location"]) for offering in found]
