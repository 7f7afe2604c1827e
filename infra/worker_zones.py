"""Which of the stack's zones have the worker nodes.

    indices = choose(zones, offered, {"instanceTypes": ("g5.xlarge",)}, 1)

By default it is one zone. Each step sums the gradients of all workers, and between zones that is slower and costs
$0.01 per GB in each direction: https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer_within_the_same_AWS_Region.
The control plane, the system nodes and the file system stay in all zones.
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
) -> list[int]:
    """Return the indices of the zones for the workers, in ascending order.

    Of a number of zones these are the first ones in which every type can be had, each type in as many as possible.

    Args:
        zones: the stack's zones.
        offered: pairs of an instance type and a zone that has it.
        wanted: instance types, by the key that names them; those that are not of workers don't matter.
        asked: the setting workerZones: how many, or their names, which are among the zones.

    Raises:
        pulumi.RunError: a type is in none of the workers' zones.
    """
    pairs = set(offered)
    of_workers = [(key, name) for key in WORKER_KEYS for name in wanted.get(key, ())]
    count = asked if isinstance(asked, int) else len(asked)

    def lacks(chosen: Sequence[int]) -> tuple[int, int]:
        found = [sum((name, zones[index]) in pairs for index in chosen) for _, name in of_workers]
        return found.count(0), -sum(found)

    if isinstance(asked, int):
        best = min(itertools.combinations(range(len(zones)), count), key=lacks)
    else:
        best = tuple(sorted(zones.index(name) for name in asked))
    named = [zones[index] for index in best]
    for key, name in of_workers:
        if not any((name, zone) in pairs for zone in named):
            raise pulumi.RunError(_nowhere(key, name, named, [zone for zone in zones if (name, zone) in pairs]))
    return list(best)


def _nowhere(key: str, name: str, chosen: Sequence[str], having: Sequence[str]) -> str:
    return (
        f"{key} = {name}: the workers are in {', '.join(chosen)}, which doesn't have it; it is in {', '.join(having)}. "
        f"Name that zone in workerZones, give workers more zones there, or choose types that one zone has together"
    )
