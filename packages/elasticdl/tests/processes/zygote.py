"""Forks masters, parameter servers and workers of ElasticDL, and other programs; it opens no channel of gRPC.

python -m packages.elasticdl.tests.processes.zygote < requests > reports       # see `tests.farm`
"""

from __future__ import annotations

import importlib
from pathlib import Path

from tests import programs
from tidewater.elastic.launch.zygote import Request, Run, serve

PROGRAMS = {
    "master": "elasticdl.master.program",
    "ps": "elasticdl.ps.__main__",
    "worker": "elasticdl.worker.main",
}
IMPORTED = ("elasticdl.allreduce.assembly", "elasticdl.api", "PIL.Image")
"""What other programs import."""


def load() -> Run:
    """Import the programs."""
    importlib.import_module("torch._dynamo")  # the optimizer would otherwise import it at its first step
    watch = importlib.import_module("packages.elasticdl.tests.chaos.points").watch
    mains = {kind: importlib.import_module(name).main for kind, name in PROGRAMS.items()}
    for name in IMPORTED:
        importlib.import_module(name)

    def run(request: Request) -> int:
        if "words" in request:
            return programs.run(request)
        if request["points"]:
            watch(request["kind"], Path(request["points"]))
        code: int = mains[request["kind"]](request["argv"])
        return code

    return run


if __name__ == "__main__":
    serve(load)
