"""What the manifests of the controller and its program agree on: where its packages are, and how quotas are written.

quotas_text({"vision": Quota(2, 4)})          # "vision=2:4", the value of `--quotas`
quotas_of("vision=2:4,speech=1:4")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REQUIREMENTS = "tidewater/controller/requirements.txt"
"""Locked packages that the controller needs, with their hashes; a file of the program."""

PACKAGES_DIRECTORY = "/packages"
"""Where the init container puts the packages that the image lacks."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How many workers the jobs of a team may have.

    Attributes:
        nominal: always, whatever other teams want.
        most: with those that other teams leave.
    """

    nominal: int
    most: int


def quotas_text(quotas: Mapping[str, Quota]) -> str:
    """Return quotas by namespace as one word."""
    return ",".join(f"{namespace}={quota.nominal}:{quota.most}" for namespace, quota in quotas.items())


def quotas_of(text: str) -> dict[str, Quota]:
    """Return the quotas that `quotas_text` has written.

    Raises:
        ValueError: the text has another form, or a namespace twice.
    """
    found: dict[str, Quota] = {}
    for part in text.split(","):
        namespace, _, numbers = part.partition("=")
        nominal, colon, most = numbers.partition(":")
        if not (namespace and colon and nominal.isdecimal() and most.isdecimal()) or namespace in found:
            raise ValueError(f"{part!r} is no quota of another namespace, as in vision=2:4")
        found[namespace] = Quota(int(nominal), int(most))
        if found[namespace].nominal > found[namespace].most:
            raise ValueError(f"{part!r}: the first number is above the second")
    return found


def size_text(resources: Mapping[str, str]) -> str:
    """Return what a worker requests, in Kubernetes' quantities, as one word."""
    return ",".join(f"{name}={quantity}" for name, quantity in resources.items())


def size_of(text: str) -> dict[str, str]:
    """Return what `size_text` has written. Raise ValueError if the text has another form."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals and quantity for name, equals, quantity in pairs):
        raise ValueError(f"{text!r} are no resources, as in cpu=3500m,memory=12Gi")
    return {name: quantity for name, _, quantity in pairs}
