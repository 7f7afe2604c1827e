"""TorchX's own scheduler for Ray, which says what is missing where Ray isn't installed.

TorchX 0.7 raises a NameError then, with which `torchx runopts` ends before it has listed the schedulers after it.
"""

from __future__ import annotations

import importlib

from torchx.schedulers.api import Scheduler


def create_scheduler(session_name: str, **kwargs: object) -> Scheduler:
    """Return the scheduler.

    Raises:
        ModuleNotFoundError: Ray isn't installed.
    """
    importlib.import_module("ray")
    module = importlib.import_module("torchx.schedulers.ray_scheduler")
    made: Scheduler = module.create_scheduler(session_name, **kwargs)
    return made
