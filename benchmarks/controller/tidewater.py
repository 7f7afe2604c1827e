"""Tidewater's controller, run as the process that its Deployment runs.

controller = Tidewater()
controller.install(plane)                   # the definition of ElasticJob, and a namespace for the Lease
process = tidewater.controller.start(plane, folder, [])
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.toolchain import paths
from tests.control_plane import NO_PROXY, Plane
from tests.processes import Process
from tidewater.elasticjob import crd, names

NAME = "tidewater-controller"
USER = "bench-tidewater"
NAMESPACE = "tidewater-system"


class Tidewater:
    """The controller; one replica, with leader election as in a cluster, where a second one waits."""

    user = USER

    def install(self, plane: Plane) -> None:
        """Create the definition and the controller's namespace."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        plane.apply(crd.definition(), namespace)
        plane.kubectl("wait", "--for=condition=Established", f"crd/{names.CRD_NAME}", "--timeout=60s")

    def start(self, plane: Plane, folder: Path, flags: Sequence[str]) -> Process:
        """Start the controller."""
        environment = {
            **NO_PROXY,
            "KUBECONFIG": str(plane.kubeconfig(USER)),
            "POD_NAME": f"{NAME}-{os.getpid()}",
            "POD_NAMESPACE": NAMESPACE,
            "PYTHONPATH": paths.IMPORTS,
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "tidewater.controller", "--metrics-port=0", *flags]
        return Process(NAME, command, environment, folder)

    def end(self) -> None:
        """Nothing is left outside of the API server."""
