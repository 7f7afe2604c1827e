"""One turn: a new stack on a one-machine cloud of its own; its job grows and shrinks with its nodes.

Both systems are asked in the same second, in the cluster and not through Pulumi, which takes as long with both:
the job gets its new size, so that pods are Pending. With one node group for all workers, EKS gets the new size, too.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.nodes.results import CHANGES, GONE, LARGE, NODEGROUP, READY, STEP, WHOLE, named
from benchmarks.stack import deployed, first_line, node_ready
from tests.e2e.checkout import Checkout, wait_until
from tests.e2e.elasticjob import Job
from tests.e2e.nodes import instances
from tests.e2e.training import node_of, running_workers, wait_for_world

PATIENCE_SECONDS = 900.0
SETTINGS = {"workers": 1, "minWorkers": 1, "maxWorkers": LARGE, "capacityType": "ON_DEMAND"}

Seconds = dict[str, list[float]]
"""By measure."""


@dataclass(frozen=True)
class Site:
    """The stack of a turn."""

    checkout: Checkout
    job: Job
    system: str
    group: str
    """Name of the worker node group."""

    def ask(self, size: int) -> None:
        """Ask for a number of workers, and of nodes if the system doesn't do that itself."""
        cluster = self.checkout.outputs["clusterName"]
        grow = (
            f"aws eks update-nodegroup-config --cluster-name {cluster} --nodegroup-name {self.group} "
            f"--scaling-config desiredSize={size} >/dev/null && "
        )
        scale = f"kubectl scale {self.job.named} --replicas={size}"
        self.checkout.run(f"{grow if self.system == NODEGROUP else ''}{scale}")


def make(system: str, folder: Path) -> Seconds:
    """Make a turn; return its seconds as a whole: nothing is kept of a turn that fails."""
    found: Seconds = defaultdict(list)
    with deployed(folder, {**SETTINGS, "surgeNodes": system}) as checkout:
        site = _site(checkout, system)
        wait_for_world(checkout, 1, seconds=PATIENCE_SECONDS)
        for size in CHANGES:
            _grow(site, size, found)
            _shrink(site, size, found)
        checkout.run("pulumi destroy --yes")
    return found


def _site(checkout: Checkout, system: str) -> Site:
    job = Job(checkout.path, checkout.outputs["jobName"], checkout.outputs["namespace"])
    groups = checkout.aws(f"eks list-nodegroups --cluster-name {checkout.outputs['clusterName']}")["nodegroups"]
    return Site(checkout, job, system, next(name for name in groups if "-workers" in name))


def _grow(site: Site, size: int, found: Seconds) -> None:
    checkout = site.checkout
    (survivor,) = running_workers(checkout)
    begin = time.time()
    site.ask(size)
    wait_for_world(checkout, size, of={survivor: None}, seconds=PATIENCE_SECONDS)
    newcomers = [pod for pod in running_workers(checkout) if pod != survivor]
    ready = max(node_ready(checkout, node_of(checkout, pod)) for pod in newcomers)
    step = first_line(checkout, newcomers, f"world_size={size} ")
    found[named(1, size, WHOLE)].append(step - begin)
    found[named(1, size, READY)].append(ready - begin)
    found[named(1, size, STEP)].append(step - ready)


def _shrink(site: Site, size: int, found: Seconds) -> None:
    checkout = site.checkout
    expected = len(instances(checkout)) - size + 1  # with the node group alone, it is EKS that decides which
    begin = time.time()
    site.ask(1)
    wait_until("the other instances to end", lambda: len(instances(checkout)) == expected, seconds=PATIENCE_SECONDS)
    found[named(size, 1, GONE)].append(time.time() - begin)
    wait_until("one worker", lambda: len(running_workers(checkout)) == 1, seconds=PATIENCE_SECONDS)
    wait_for_world(checkout, 1, seconds=PATIENCE_SECONDS)
