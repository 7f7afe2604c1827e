"""What is compared: a controller, its flags, and its kind of jobs.

system = systems()["training-operator tuned"]
process = system.controller.start(plane, folder, system.flags)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.controller import jobs, results
from benchmarks.controller.training_operator import TrainingOperator
from scripts.toolchain import paths
from tests.control_plane import NO_PROXY, Plane, await_definitions
from tests.processes import Process
from tidewater.elasticjob import crd

NAME = "tidewater-controller"
NAMESPACE = "tidewater-system"


class Controller(Protocol):
    """A controller that can be installed once and started often."""

    user: str
    """Its name in the API server's audit log."""

    def install(self, plane: Plane) -> None:
        """Create what it needs in the API server."""

    def start(self, plane: Plane, folder: Path, flags: Sequence[str]) -> Process:
        """Start it; its log is in the folder."""

    def end(self) -> None:
        """Delete what it has made outside of the API server and the folder."""


class Tidewater:
    """The controller; one replica, with leader election as in a cluster, where a second one waits."""

    user = "bench-tidewater"

    def install(self, plane: Plane) -> None:
        """Create the definition and the controller's namespace."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        plane.apply(crd.definition(), namespace)
        await_definitions(plane.kubectl)

    def start(self, plane: Plane, folder: Path, flags: Sequence[str]) -> Process:
        """Start the controller."""
        environment = {
            **NO_PROXY,
            "KUBECONFIG": str(plane.kubeconfig(self.user)),
            "POD_NAME": f"{NAME}-{os.getpid()}",
            "POD_NAMESPACE": NAMESPACE,
            "PYTHONPATH": paths.IMPORTS,
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "tidewater.controller", "--metrics-port=0", *flags]
        return Process(NAME, command, environment, folder)

    def end(self) -> None:
        """Nothing is left outside of the API server."""


@dataclass(frozen=True)
class System:
    """One column of the comparison."""

    name: str
    controller: Controller
    kind: jobs.Kind
    flags: tuple[str, ...] = ()


def systems() -> dict[str, System]:
    """Return all systems by name. The two training-operators are one installation with different flags."""
    operator = TrainingOperator()
    tuned = ("--kube-api-qps=1000", "--kube-api-burst=2000", "--controller-threads=8")
    each = (
        System(results.TIDEWATER, Tidewater(), jobs.ELASTIC_JOB),
        System(results.TUNED, operator, jobs.PYTORCH_JOB, tuned),
        System(results.DEFAULTS, operator, jobs.PYTORCH_JOB),
    )
    return {system.name: system for system in each}
