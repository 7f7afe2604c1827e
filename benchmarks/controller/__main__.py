"""Compares the controller with Kubeflow's training-operator v1.9.2: a thousand jobs on one real API server.

    make bench-controller                                       # everything: about two hours
    python -m benchmarks.controller --plan                      # what would run, and for how long
    python -m benchmarks.controller --jobs 1000 --turns 2 --systems "tidewater,training-operator tuned"
    python -m benchmarks.controller --jobs none --pods 1000 --systems tidewater     # one job with many pods

In turns on the same API server, each controller gets the same number of jobs with the same workers. No node runs the
pods. Results are appended to a file as soon as a turn is over, and what the file has is not measured again. So a run
can be interrupted, continued, and split by numbers of jobs and systems.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

from localcloud.errors import CloudError
from typing_extensions import override

from benchmarks.controller import plan, results
from benchmarks.controller.large import LargeRun
from benchmarks.controller.systems import systems
from benchmarks.controller.turn import TurnRun
from benchmarks.harness.command import Benchmark, Make, Say, TurnFailed, main
from benchmarks.harness.plan import Series, Turn
from benchmarks.harness.records import Found
from scripts.toolchain.table import ETCD, KUBERNETES, TRAINING_OPERATOR
from tests.control_plane import Plane, PlaneError


def sizes(text: str) -> list[int]:
    """Return a comma-separated list of numbers, the smallest first; `none` is an empty one."""
    if text == "none":
        return []
    try:
        given = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: numbers, separated by commas, such as 100,1000") from error
    if given[0] < 1:
        raise argparse.ArgumentTypeError(f"{given[0]}: at least one job")
    return given


class Controllers(Benchmark):
    """Controllers that run on one API server, one at a time."""

    name = "controller"
    systems = results.SYSTEMS
    runs, runs_flag = 5, "--turns"
    options = MappingProxyType(
        {
            "--jobs": {
                "type": sizes,
                "default": list(plan.SIZES),
                "help": "comma-separated, or none (default %(default)s)",
            },
            "--pods": {
                "type": sizes,
                "default": [],
                "metavar": "PODS",
                "help": "one job with so many pods as well, comma-separated, such as 1000 (default: none)",
            },
            "--resizes": {"type": int, "default": 100, "help": "in each turn (default %(default)s)"},
            "--rest": {"type": float, "default": 60.0, "help": "seconds of rest in a turn (default %(default)s)"},
        }
    )
    fatal = (PlaneError, CloudError, TurnFailed)

    @override
    def versions(self) -> dict[str, str]:
        return {"training-operator": TRAINING_OPERATOR, "kubernetes": KUBERNETES, "etcd": ETCD}

    @override
    def blocks(self, given: argparse.Namespace) -> list[list[Series]]:
        return plan.blocks(given.jobs, given.systems, given.runs, _pace(given), given.pods)

    @override
    @contextlib.contextmanager
    def opened(self, given: argparse.Namespace, turns: Sequence[Turn], folder: Path, say: Say) -> Iterator[Make]:
        with opened(folder, {turn.series.system for turn in turns}, _pace(given)) as make:
            say("the API server is ready")
            yield make


def _pace(given: argparse.Namespace) -> plan.Pace:
    return plan.Pace(resizes=given.resizes, rest_seconds=given.rest)


@contextlib.contextmanager
def opened(folder: Path, names: set[str], pace: plan.Pace) -> Iterator[Make]:
    """Provide what makes turns of these systems, on a control plane on which their controllers are installed."""
    chosen = {name: system for name, system in systems().items() if name in names}
    # Two systems may be one installation.
    controllers = {id(system.controller): system.controller for system in chosen.values()}.values()
    plane = Plane(folder, sorted({controller.user for controller in controllers}))

    def make(turn: Turn) -> list[Found]:
        system, (pods, _) = chosen[turn.series.system], results.pods_of(turn.series.counted)
        jobs = 1 if pods else results.split(turn.series.counted)[0]
        place = folder / f"{jobs}-{pods}-{turn.number}-{system.name.replace(' ', '-')}"
        place.mkdir()
        run = LargeRun(plane, system, pods, pace, place) if pods else TurnRun(plane, system, jobs, pace, place)
        found = run.run()
        return [Found(name, system.name, (value,), results.unit(name)) for name, value in found.items()]

    with contextlib.ExitStack() as stack:
        stack.callback(plane.end)
        plane.start()
        for controller in controllers:
            stack.callback(controller.end)
            controller.install(plane)
        yield make


if __name__ == "__main__":
    sys.exit(main(Controllers(), sys.argv[1:]))
