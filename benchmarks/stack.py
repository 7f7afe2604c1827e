"""A stack on a one-machine cloud of its own, and what benchmarks read of its pods and nodes.

    with deployed(folder, {"workers": 1, "surgeNodes": "karpenter"}) as checkout:
        first_line(checkout, running_workers(checkout), "step=")

The settings of the user who runs the benchmark, and this user's cloud, stay as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from tests.e2e.checkout import Checkout


@contextlib.contextmanager
def checked_out(folder: Path) -> Iterator[Checkout]:
    """Provide a copy of the checkout, and stop its cloud afterwards."""
    checkout = Checkout.copy_to(folder)
    try:
        yield checkout
    finally:
        checkout.run("localcloud stop", expect=None)


@contextlib.contextmanager
def deployed(folder: Path, settings: Mapping[str, object]) -> Iterator[Checkout]:
    """Provide a checkout with a stack that trains with these settings, and stop its cloud afterwards."""
    with checked_out(folder) as checkout:
        checkout.run("localcloud start")
        checkout.run("pulumi stack select --create local")  # in a shell that knows the cloud
        for key, value in settings.items():
            checkout.run(f"pulumi config set {key} {value}")
        checkout.make("up")
        yield checkout


def first_line(checkout: Checkout, pods: Iterable[str], sign: str, after: float = 0.0) -> float:
    """Return when one of `pods` first printed a line with `sign` after a time, in seconds since the epoch."""
    found = []
    for pod in pods:
        logs = checkout.run(f"kubectl logs -n {checkout.namespace} {pod} --timestamps --tail=-1").text
        found += [_epoch(line.split(" ", 1)[0]) for line in logs.splitlines() if sign in line]
    return min(at for at in found if at > after)


def node_ready(checkout: Checkout, node: str) -> float:
    """Return when a node became Ready, in seconds since the epoch (the API server stores whole seconds)."""
    conditions = checkout.json(f"kubectl get node {node} -o json")["status"]["conditions"]
    ready = next(c for c in conditions if c["type"] == "Ready")
    return _epoch(ready["lastTransitionTime"])


def _epoch(timestamp: str) -> float:
    """Return an RFC 3339 time as seconds since the epoch (fractions beyond microseconds are cut off)."""
    head, _, fraction = timestamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{fraction[:6]:0<6}+00:00").timestamp()
