"""What a stack costs by the hour, from a table of one day's list prices.

    hourly(stack)       # {"controlPlane": 0.1, "systemNodes": 0.192, …, "total": 2.354, "note": "US dollars; …"}

AWS's own price list is a service of few regions, for which a deployer needs rights of its own. A table gets old, so the
result says its day.
"""

from __future__ import annotations

from typing import Any

from settings.model import Settings
from settings.nodes import Nodes

DAY = "2026-11-27"
REGION = "us-west-2"

CONTROL_PLANE = 0.10
"""With standard support: https://aws.amazon.com/eks/pricing/"""

NAT_GATEWAY = 0.045 + 0.005
"""With its public address: https://aws.amazon.com/vpc/pricing/"""

FILE_THROUGHPUT = 6.00 / 730
"""For each MiB/s that is provisioned; a month has 730 hours: https://aws.amazon.com/efs/pricing/"""

_LISTED = """
m5.large 0.096, m5.xlarge 0.192, m5.2xlarge 0.384, m6i.large 0.096, m6i.xlarge 0.192, m6i.2xlarge 0.384,
g4dn.xlarge 0.526, g4dn.2xlarge 0.752, g4dn.4xlarge 1.204, g4dn.8xlarge 2.176, g4dn.12xlarge 3.912, g4dn.16xlarge 4.352,
g5.xlarge 1.006, g5.2xlarge 1.212, g5.4xlarge 1.624, g5.8xlarge 2.448,
g5.12xlarge 5.672, g5.16xlarge 4.096, g5.24xlarge 8.144, g5.48xlarge 16.288,
g6.xlarge 0.8048, g6.2xlarge 0.9776, g6.4xlarge 1.3232, g6.8xlarge 2.0144,
g6.12xlarge 4.6016, g6.16xlarge 3.3968, g6.24xlarge 6.6752, g6.48xlarge 13.3504,
p4d.24xlarge 21.957642, p5.48xlarge 55.04
"""
INSTANCES = {name: float(price) for name, price in (each.split() for each in _LISTED.split(","))}
"""Linux, On-Demand: https://aws.amazon.com/ec2/pricing/on-demand/"""


def hourly(stack: Settings) -> dict[str, Any]:
    """Return the parts and their sum in US dollars, for the number of workers that is set, and what they leave out.

    Of several instance types EC2 may take any; here it is the first. A part with a type that the table lacks is not
    there, and the note names the type.
    """
    parts = {} if stack.cluster.existing else {"controlPlane": CONTROL_PLANE}
    if not stack.network.existing:
        parts["natGateways"] = (stack.network.zone_count if stack.network.nat_per_zone else 1) * NAT_GATEWAY
    if mibps := stack.file_throughput.mibps:
        parts["fileThroughput"] = mibps * FILE_THROUGHPUT
    groups = {"systemNodes": stack.system, "workerNodes": stack.workers.nodes, "surgeNodes": _surge(stack)}
    used = {part: nodes for part, nodes in groups.items() if nodes.desired}
    lacking = [nodes.instance_types[0] for nodes in used.values() if nodes.instance_types[0] not in INSTANCES]
    for part, nodes in used.items():
        if nodes.instance_types[0] in INSTANCES:
            parts[part] = nodes.desired * INSTANCES[nodes.instance_types[0]]
    parts["total"] = sum(parts.values())
    return {**{part: round(price, 4) for part, price in parts.items()}, "note": _note(stack, lacking)}


def _surge(stack: Settings) -> Nodes:
    """Return the nodes that Karpenter brings for the workers that the core has no nodes for."""
    core, surge = stack.workers.nodes, stack.surge
    count = max(0, -(-stack.workers.count // stack.workers.per_node) - core.desired) if surge else 0
    return Nodes(count, 0, count, (surge.instance_types if surge else ()) or core.instance_types)


def _note(stack: Settings, lacking: list[str]) -> str:
    pools = "nodes of pools, " if stack.pools else ""  # they come with jobs
    found = [
        f"US dollars; list prices of {REGION} for On-Demand on {DAY}, from a table in the program; check yours.",
        f"Not in it: {pools}storage, requests, logs and traffic.",
    ]
    if stack.region != REGION:
        found.append(f"Prices in {stack.region} are others.")
    if "SPOT" in (stack.workers.nodes.capacity_type, stack.surge and stack.surge.capacity_type):
        found.append("Spot nodes cost less.")
    if lacking:
        found.append(f"The table has no price for {', '.join(dict.fromkeys(lacking))}.")
    return " ".join(found)
