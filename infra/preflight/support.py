"""Whether EKS supports the Kubernetes version, and for how long.

The stack asks EKS for standard support only. When that ends, EKS upgrades the cluster by itself, and refuses new ones.
A `kubernetesVersion` that was left behind would then be an update back, which EKS refuses in the middle of a
`pulumi up`.
https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

WARNING_DAYS = 60
STANDARD = "STANDARD_SUPPORT"


@dataclass(frozen=True)
class Support:
    """What EKS says of a version: the status of its support, and the day on which standard support ends."""

    status: str
    until: date


def mistakes(version: str, support: Support, newest: str) -> list[str]:
    """Return a mistake if EKS no longer supports the version as the stack asks for it."""
    if support.status == STANDARD:
        return []
    return [
        f"kubernetesVersion = {version}: its standard support has ended on {support.until}, and EKS upgrades clusters "
        f"of it and makes no new ones; {_remedy(version, newest)}"
    ]


def warnings(version: str, support: Support, newest: str, today: date) -> list[str]:
    """Return a warning if standard support ends within two months."""
    left = (support.until - today).days
    if support.status != STANDARD or left > WARNING_DAYS:
        return []
    return [
        f"kubernetesVersion = {version}: its standard support ends on {support.until}, in {left} days, and EKS then "
        f"upgrades the cluster by itself; {_remedy(version, newest)}"
    ]


def _remedy(version: str, newest: str) -> str:
    if version == newest:
        return "take a version of this program that has a later one"
    return f"docs/upgrades.md says how to go on to {newest}"
