"""Measures the life of a stack on the one-machine cloud from the outside, as a user experiences it.

    make bench                                    # five lives each with Karpenter and a node group, about 25 minutes
    make bench ARGS="--plan"                      # what would run, and for how long
    make bench ARGS="--measures cold --runs 1"    # `make up` with an empty TIDEWATER_CACHE, not part of the others

Each life is a copy of the checkout with its own cloud, the two values of `surgeNodes` in turns. A life is `make up`
with nothing running, `pulumi preview` and `pulumi up` without changes, a worker more and a worker fewer, and
`pulumi destroy`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from benchmarks.harness.command import Benchmark, Make, Say, main
from benchmarks.harness.plan import Series, Turn
from benchmarks.harness.records import Found
from benchmarks.stack import checked_out, first_line, node_ready
from scripts.toolchain.table import KARPENTER, KUBERNETES, PULUMI
from tests.e2e.checkout import Checkout
from tests.e2e.training import node_of, running_workers, wait_for_world

UP, PREVIEW, UNCHANGED = "make up, with nothing running", "preview without changes", "up without changes"
GROW, SHRINK, DESTROY = "resize 2 to 3", "resize 3 to 2", "destroy"
RETURNS, STEP = "until pulumi up returns", "until the first step of all workers"
COLD = "make up, with nothing installed"
IMPORTS = "import of the SDKs"
SYSTEMS = ("karpenter", "nodegroup")
"""The values of the setting `surgeNodes`."""
COUNTED = {"life": DESTROY, "cold": COLD}
SECONDS = {"life": 150.0, "cold": 1500.0}
"""Of one turn on a quiet machine with 2 cores."""
COLD_SECONDS = 7200.0
"""Limit for a set-up from nothing."""
SLOWEST = 8
"""Number of resources to list for each life."""
CREATED = re.compile(r"^ \+ +(\S+) (\S+) created \(([\d.]+)s\)", re.MULTILINE)
SDKS = "import pulumi, pulumi_eks, pulumi_kubernetes.batch.v1, pulumi_kubernetes.core.v1, " + ", ".join(
    f"pulumi_aws.{service}" for service in ("ec2", "vpc", "eks", "iam", "s3", "efs", "kms", "cloudwatch")
)
"""What the program imports: a package of the SDK reads its modules on first use."""


class Lifecycle(Benchmark):
    """Stacks from `make up` to `pulumi destroy`."""

    name = "lifecycle"
    systems, measures, by_default = SYSTEMS, tuple(COUNTED), ("life",)
    runs = 5
    failures = (AssertionError, subprocess.SubprocessError)

    @override
    def versions(self) -> dict[str, str]:
        return {"pulumi": PULUMI, "kubernetes": KUBERNETES, "karpenter": KARPENTER}

    @override
    def blocks(self, given: argparse.Namespace) -> list[list[Series]]:
        return [
            [Series(measure, (system,), COUNTED[measure], given.runs, SECONDS[measure]) for system in given.systems]
            for measure in given.measures
        ]

    @override
    @contextlib.contextmanager
    def opened(self, given: argparse.Namespace, turns: Sequence[Turn], folder: Path, say: Say) -> Iterator[Make]:
        made = {"life": one_life, "cold": from_nothing}

        def make(turn: Turn) -> list[Found]:
            measure, system = turn.series.label, turn.series.system
            with checked_out(folder / f"{measure}-{system}-{turn.number}") as checkout:
                settings = checkout.path / "Pulumi.local.yaml"
                key = f"config:\n  tidewater:surgeNodes: {system}\n"
                settings.write_text(settings.read_text().replace("config:\n", key, 1))
                found = made[measure](checkout)
            return [Found(name, system, (seconds,), "s") for name, seconds in found.items()]

        yield make


def one_life(checkout: Checkout) -> dict[str, float]:
    """Create, resize and destroy one stack. Return seconds by measure."""
    begin = time.time()
    printed = checkout.make("up").text
    spent = {UP: time.time() - begin}
    spent |= {f"of that: {what}": seconds for what, seconds in slowest_resources(printed).items()}
    spent[f"{UP}, until the first step"] = first_line(checkout, running_workers(checkout), "step=") - begin
    spent[PREVIEW] = seconds_of(checkout, "pulumi preview --expect-no-changes")
    spent[UNCHANGED] = seconds_of(checkout, "pulumi up --yes --expect-no-changes")
    spent |= resize(checkout, 3, GROW)
    newest = running_workers(checkout)[-1]
    three = first_line(checkout, [newest], "world_size=3 ")
    spent[f"{GROW}, from node Ready to that step"] = three - node_ready(checkout, node_of(checkout, newest))
    spent |= resize(checkout, 2, SHRINK)
    spent[IMPORTS] = import_seconds()
    spent[DESTROY] = seconds_of(checkout, "pulumi destroy --yes")
    return spent


def resize(checkout: Checkout, workers: int, measure: str) -> dict[str, float]:
    """Give the job another size by the stack's setting; return the seconds until both programs have done it."""
    begin = time.time()
    checkout.run(f"pulumi config set workers {workers} && pulumi up --yes")
    returned = time.time()
    wait_for_world(checkout, workers)
    step = first_line(checkout, running_workers(checkout), f"world_size={workers} ", after=begin)
    return {f"{measure}, {RETURNS}": returned - begin, f"{measure}, {STEP}": step - begin}


def from_nothing(checkout: Checkout) -> dict[str, float]:
    """Run `make up` with an empty cache, so that every tool is built. Return seconds by measure."""
    cache = checkout.path.with_name(f"{checkout.path.name}-cache")
    begin = time.monotonic()
    done = subprocess.run(
        ["make", "up"],
        cwd=checkout.path,
        env={**checkout.environment(), "TIDEWATER_CACHE": str(cache)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COLD_SECONDS,
        check=False,
    )
    spent = time.monotonic() - begin
    assert done.returncode == 0, done.stdout[-2000:]
    parts: dict[str, float] = json.loads((cache / "timings.json").read_text())
    return {**{f"of that: {part}": seconds for part, seconds in parts.items()}, COLD: spent}


def seconds_of(checkout: Checkout, command: str) -> float:
    """Return how long `command` takes in an activated shell."""
    checkout.activated()
    begin = time.monotonic()
    checkout.run(command)
    return time.monotonic() - begin


def slowest_resources(printed: str) -> dict[str, float]:
    """Return the resources that took longest, from the output of `pulumi up`, slowest first."""
    spent = {f"{kind} {name}": float(seconds) for kind, name, seconds in CREATED.findall(printed)}
    return dict(sorted(spent.items(), key=lambda item: -item[1])[:SLOWEST])


def import_seconds() -> float:
    """Return how long a bare interpreter takes to import the SDKs that the program uses."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", SDKS], check=True)
    return time.monotonic() - begin


if __name__ == "__main__":
    sys.exit(main(Lifecycle(), sys.argv[1:]))
