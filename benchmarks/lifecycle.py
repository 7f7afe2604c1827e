"""Measures the life of a stack on the one-machine cloud from the outside, as a user experiences it.

    python -m benchmarks.lifecycle            # five lives each with Karpenter and a node group, about 20 minutes
    python -m benchmarks.lifecycle --runs 1

Uses copies of the checkout with their own clouds, the two values of `surgeNodes` in turns. It measures, in seconds:

- first step: `make up` on a warm machine with nothing running, to the first step in a worker's log;
- no-op up: `pulumi up --yes` when nothing has changed;
- resize 2 -> 3: from the time at which the new node is Ready to the first step with `world_size=3`, and in total;
- destroy: `pulumi destroy --yes`;
- the parts of the first: the slowest resources, the import of the SDKs, the steps of the set-up.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from benchmarks.rows import Row, publish
from tests.e2e.checkout import Checkout
from tests.e2e.training import node_of, running_workers, wait_for_world

CREATED = re.compile(r"^ \+ +(\S+) (\S+) created \(([\d.]+)s\)", re.MULTILINE)
SYSTEMS = ("karpenter", "nodegroup")
"""The values of the setting `surgeNodes`."""
SLOWEST = 8
"""Number of resources to list for each run."""
SDKS = "import pulumi, pulumi_eks, pulumi_kubernetes.batch.v1, pulumi_kubernetes.core.v1, " + ", ".join(
    f"pulumi_aws.{service}" for service in ("ec2", "vpc", "eks", "iam", "s3", "efs", "kms", "cloudwatch")
)
"""What the program imports: a package of the SDK reads its modules on first use."""


def seconds_of(checkout: Checkout, command: str) -> float:
    """Return how long `command` takes in an activated shell."""
    begin = time.monotonic()
    checkout.run(command)
    return time.monotonic() - begin


def _epoch(timestamp: str) -> float:
    """Return an RFC 3339 time as seconds since the epoch (fractions beyond microseconds are cut off)."""
    head, _, fraction = timestamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{fraction[:6]:0<6}+00:00").timestamp()


def first_line(checkout: Checkout, pods: Iterable[str], sign: str) -> float:
    """Return when one of `pods` first printed a line with `sign`, in seconds since the epoch."""
    times = []
    for pod in pods:
        logs = checkout.run(f"kubectl logs -n {checkout.namespace} {pod} --timestamps --tail=-1").text
        hits = [line.split(" ", 1)[0] for line in logs.splitlines() if sign in line]
        times += [_epoch(hits[0])] if hits else []
    return min(times)


def node_ready(checkout: Checkout, node: str) -> float:
    """Return when a node became Ready, in seconds since the epoch (the API server stores whole seconds)."""
    conditions = checkout.json(f"kubectl get node {node} -o json")["status"]["conditions"]
    ready = next(c for c in conditions if c["type"] == "Ready")
    return _epoch(ready["lastTransitionTime"])


def one_life(directory: Path, system: str) -> dict[str, float]:
    """Create, resize and destroy one stack. Return seconds by measure."""
    checkout = Checkout.copy_to(directory)
    settings = checkout.path / "Pulumi.local.yaml"
    settings.write_text(settings.read_text().replace("config:\n", f"config:\n  tidewater:surgeNodes: {system}\n", 1))
    try:
        begin = time.time()
        printed = checkout.make("up").text
        spent = {"nothing -> make up returns": time.time() - begin}
        spent |= {f"of that: {what}": seconds for what, seconds in slowest_resources(printed).items()}
        step = first_line(checkout, running_workers(checkout), "step=")
        spent["nothing -> first step"] = step - begin
        spent["no-op up"] = seconds_of(checkout, "pulumi up --yes --expect-no-changes")
        begin = time.time()
        checkout.run("pulumi config set workers 3 && pulumi up --yes")
        wait_for_world(checkout, 3)
        newest = running_workers(checkout)[-1]
        three = first_line(checkout, [newest], "world_size=3")
        spent["resize 2 -> 3, whole"] = three - begin
        spent["resize 2 -> 3, node Ready -> world_size=3"] = three - node_ready(checkout, node_of(checkout, newest))
        spent["destroy"] = seconds_of(checkout, "pulumi destroy --yes")
        return spent
    finally:
        checkout.run("python -m localcloud stop", expect=None)


def slowest_resources(printed: str) -> dict[str, float]:
    """Return the resources that took longest, from the output of `pulumi up`, slowest first."""
    spent = {f"{kind} {name}": float(seconds) for kind, name, seconds in CREATED.findall(printed)}
    return dict(sorted(spent.items(), key=lambda item: -item[1])[:SLOWEST])


def import_seconds(runs: int) -> list[float]:
    """Return how long a bare interpreter takes to import the SDKs that the program uses."""
    spent = []
    for _ in range(runs):
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", SDKS], check=True)
        spent.append(time.monotonic() - begin)
    return spent


def setup_rows() -> list[Row]:
    """Return the seconds that each part of the cold set-up took when it last ran on this machine."""
    from scripts import toolchain

    timings = toolchain.cache() / "timings.json"
    parts = json.loads(timings.read_text()) if timings.exists() else {}
    return [Row.of(f"cold set-up: {part}", "tidewater", [s], unit="s") for part, s in parts.items()]


def main() -> None:
    """Run the lives one after another and publish the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="how many lives of each (default: 5)")
    runs = parser.parse_args().runs
    lives: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
    for number in range(1, runs + 1):
        # The other one is first in every second turn, so that neither always has the warmer machine.
        for system in SYSTEMS if number % 2 else reversed(SYSTEMS):
            with tempfile.TemporaryDirectory(prefix="lifecycle-") as directory:
                lives[system].append(one_life(Path(directory) / "tidewater", system))
            print(f"life {number} of {runs}, {system}: {lives[system][-1]}", flush=True)
    rows = [row for system in SYSTEMS for row in life_rows(system, lives[system])]
    rows.append(Row.of("import of the SDKs", "pulumi SDKs", import_seconds(runs), unit="s"))
    publish("lifecycle", rows + setup_rows())


def life_rows(system: str, lives: Sequence[dict[str, float]]) -> list[Row]:
    """Return a row for each measure. The slowest resources may differ between lives."""
    measures = dict.fromkeys(measure for life in lives for measure in life)
    return [
        Row.of(measure, system, [life[measure] for life in lives if measure in life], unit="s") for measure in measures
    ]


if __name__ == "__main__":
    main()
