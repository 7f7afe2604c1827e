"""Elastic training of PyTorch models: what a training script imports, and the programs around it.

    import tidewater                                  # for a training script, see docs/training.md

    def training(config: tidewater.Config) -> tidewater.Training: ...

    raise SystemExit(tidewater.run(training))

    with tidewater.session(tidewater.init(), model=…) as run:    # or, for a loop of its own
        for batch in run.batches(): ...

elastic     the runtime in a worker: data-parallel training that continues while workers join and leave
controller  the controller of ElasticJobs, which runs in the cluster
cli         the command `tidewater`
project     a person's folder with code and lock of packages, as archives
elasticjob  the ElasticJob API: what a job is, its rules, its schema; the manifests that install it
contract    names, keys, codes and times that two of these programs share

The public names are imported when they are first used, so that the command line and the controller, which have other
dependencies, don't import the runtime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewater.elastic.config import Config
    from tidewater.elastic.errors import ConfigError
    from tidewater.elastic.observe.tracker import Tracker
    from tidewater.elastic.runtime import init, run, session
    from tidewater.elastic.training import Evaluated, Report, Stop, Training

__all__ = ["Config", "ConfigError", "Evaluated", "Report", "Stop", "Tracker", "Training", "init", "run", "session"]

_HOME = {"Config": "config", "ConfigError": "errors", "Tracker": "observe.tracker"}
_HOME |= dict.fromkeys(("init", "run", "session"), "runtime")
_HOME |= dict.fromkeys(("Evaluated", "Report", "Stop", "Training"), "training")


def __getattr__(name: str) -> Any:
    """Import a public name from the runtime when it is first used (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidewater.elastic.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
