"""The part of `parsing` for what the worker nodes have in common, whoever brings them.

machines.machines(read, network, workers).zones      # 1
"""

from __future__ import annotations

import re

from settings.model import Machines, Network, Workers
from settings.reader import Reader


def machines(read: Reader, network: Network, workers: Workers) -> Machines:
    """Return what the worker nodes have in common."""
    return Machines(zones=_zones(read, network), update_strategy=_update_strategy(read, workers))


def _update_strategy(read: Reader, workers: Workers) -> str:
    asked = read.choice("updateStrategy", ("auto", "DEFAULT", "MINIMAL"))
    if asked != "auto":
        return asked
    return "MINIMAL" if workers.gpus else "DEFAULT"


def _zones(read: Reader, network: Network) -> int | tuple[str, ...]:
    key, most = "workerZones", network.zone_count
    text = read.text(key, r"\S.*", "a count of zones, or names with commas between them")
    if re.fullmatch(r"\d+", text):
        if not 1 <= int(text) <= most:
            read.wrong(key, text, f"must be from 1 to {most}, the number of availabilityZones")
        return int(text)
    names = tuple(name.strip() for name in text.split(","))
    if isinstance(network.zones, int):
        read.wrong(key, text, "zones can be named only if availabilityZones names zones too, these among them")
    elif strangers := [name for name in names if name not in network.zones]:
        read.wrong(key, text, f"{', '.join(strangers)}: not among availabilityZones ({', '.join(network.zones)})")
    if len(set(names)) != len(names):
        read.wrong(key, text, "must name each zone once")
    return names
