"""Which of the stack's zones have the worker nodes.

    choose(zones, offered, {"instanceTypes": ("g5.xlarge",)}, 1)        # ["us-west-2a"]

By default it is one zone. Each step sums the gradients of all workers, and between zones that is slower and costs
$0.01 per GB in each direction: https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer_within_the_same_AWS_Region.
The control plane, the system nodes and the file system stay in all zones.

A choice is kept. AWS offers types in further zones now and then, and another choice would replace the whole node group:
https://github.com/pulumi/pulumi-eks/pull/1593.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pulumi

WORKER_KEYS = ("instanceTypes", "surgeInstanceTypes")
"""The config keys that name types of worker nodes."""


def choose(
    zones: Sequence[str],
    offered: Sequence[tuple[str, str]],
    wanted: Mapping[str, Sequence[str]],
    asked: int | Sequence[str],
    kept: Sequence[str] = (),
) -> list[str]:
    """Return the zones for the workers, in the order of the stack's.

    Of a number of zones these are the ones that were chosen before; if there are none, or they no longer have every
    type, the first ones in which every type can be had, each type in as many as possible.

    Args:
        zones: the stack's zones.
        offered: pairs of an instance type and a zone that has it.
        wanted: instance types, by the key that names them; those that are not of workers don't matter.
        asked: the setting workerZones: how many, or their names, which are among the zones.
        kept: what was chosen before.

    Raises:
        pulumi.RunError: a type is in none of the workers' zones.
    """
    pairs = set(offered)
    of_workers = [(key, name) for key in WORKER_KEYS for name in wanted.get(key, ())]

    def lacks(chosen: Sequence[str]) -> tuple[int, int]:
        found = [sum((name, zone) in pairs for zone in chosen) for _, name in of_workers]
        return found.count(0), -sum(found)

    if not isinstance(asked, int):
        best = [zone for zone in zones if zone in asked]
    elif len(kept) == asked and set(kept) <= set(zones) and lacks(kept)[0] == 0:
        best = [zone for zone in zones if zone in kept]
    else:
        fewest_lacks: Sequence[str] = min(itertools.combinations(zones, asked), key=lacks)
        best = list(fewest_lacks)
    for key, name in of_workers:
        if not any((name, zone) in pairs for zone in best):
            raise pulumi.RunError(_nowhere(key, name, best, [zone for zone in zones if (name, zone) in pairs]))
    return best


def _nowhere(key: str, name: str, chosen: Sequence[str], having: Sequence[str]) -> str:
    return (
        f"{key} = {name}: the workers are in {', '.join(chosen)}, which doesn't have it; it is in {', '.join(having)}. "
        f"Name that zone in workerZones, give workers more zones there, or choose types that one zone has together"
    )
