"""Forks the workers of a rehearsal, so that torch is imported once and not ten times.

    python -m tidewater.elastic.rehearsal.zygote < requests > reports       # see `launch.farm`

A request has the `command` of its worker, which is the arguments of `launch.project`, and its `environment`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys

from tidewater.elastic.launch import project
from tidewater.elastic.launch.zygote import Request, Run, serve


def load() -> Run:
    """Import what a worker imports."""
    import torch._dynamo

    import tidewater.elastic

    for module in pkgutil.walk_packages(tidewater.elastic.__path__, "tidewater.elastic."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of packages that workers do without
                importlib.import_module(module.name)
    assert torch._dynamo  # the optimizer would otherwise import it at its first step
    return _run


def _run(request: Request) -> int:
    """Run the script as `launch.project` does. Return its exit code."""
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["command"]
    try:
        project.main()
    except SystemExit as ended:
        if ended.code is None:
            return 0
        raise
    return 0


if __name__ == "__main__":
    serve(load)
