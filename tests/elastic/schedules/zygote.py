"""Forks workers of the trainer.

    python -m tests.elastic.schedules.zygote < requests > reports       # see `tests.farm`

A request with options is for ``script``; one without is for any program, see `tests.programs`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pkgutil
from pathlib import Path

from tests import programs
from tidewater.elastic.launch.zygote import Request, Run, serve

_CLONE_NEWNET = 0x40000000


def load() -> Run:
    """Import all that a worker may import."""
    import torch._dynamo

    import tests.elastic.schedules.script
    import tidewater.elastic
    import trainer

    for package in (tidewater.elastic, trainer):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):  # modules with dependencies that workers lack, such as the chart
                    importlib.import_module(module.name)
    assert torch._dynamo  # the optimizer would otherwise import it at its first step
    assert tests.elastic.schedules.script
    return _run


def _run(request: Request) -> int:
    if request.get("netns"):
        _enter_network(request["netns"])
    return _train(request) if "options" in request else programs.run(request)


def _train(request: Request) -> int:
    from tests.elastic.schedules.script import Options, main

    options = dict(request["options"])
    options["folder"], options["ledgers"] = Path(options["folder"]), Path(options["ledgers"])
    return main(Options(**options), list(request["argv"]))


def _enter_network(name: str) -> None:
    namespace = os.open(f"/run/netns/{name}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")
    os.close(namespace)


if __name__ == "__main__":
    serve(load)
