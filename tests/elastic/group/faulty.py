"""Failures of one worker's own, which torch raises in it again and again. For installation in a forked worker.

    faulty.install("device", "connect")        # torch.AcceleratorError whenever it connects with others

They begin when the worker is in a group with others: before that it warms up alone. ``install(…, alone=True)`` fails
from the first group on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tidewater.elastic.group import broadcast, gloo
from tidewater.elastic.group.group import Group
from tidewater.elastic.session.evaluation import Evaluation
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper

PLACES: dict[str, tuple[Any, str]] = {
    "prepare": (gloo.Gloo, "prepare"),
    "connect": (gloo.Reconfigured, "connect"),
    "begin": (gloo.Gloo, "begin"),
    "finish": (gloo.Gloo, "finish"),
    "fetch": (State, "load"),
    "send": (broadcast, "_gather"),
    "forward": (Stepper, "_forward"),
    "apply": (Stepper, "apply"),
    "score": (Evaluation, "_scored"),
}
ERRORS: dict[str, Callable[[], Exception]] = {
    "device": lambda: torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
    "memory": lambda: torch.AcceleratorError("CUDA error: out of memory"),
    "library": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(…)`"),
    "local": lambda: RuntimeError("ncclSystemError: System call (e.g. socket, malloc) failed or device error."),
    "peer": lambda: RuntimeError("[../gloo/transport/tcp/pair.cc:554] Connection closed by peer [127.0.0.1]:4711"),
}


def install(error: str, place: str, *, alone: bool = False) -> None:
    """Raise an error of ``ERRORS`` at a place of ``PLACES``."""
    owner, name = PLACES[place]
    form, original = Group.form, getattr(owner, name)
    together = alone

    @functools.wraps(form)
    def formed(group: Group, uuid: int, rank: int, addresses: Any, *more: Any, **named: Any) -> None:
        nonlocal together
        together = alone or len(addresses) > 1
        form(group, uuid, rank, addresses, *more, **named)

    @functools.wraps(original)
    def faulty(*given: Any, **named: Any) -> Any:
        if together:
            if error == "library":
                _let_the_gpu_repeat(ERRORS["device"]())
            raise ERRORS[error]()
        return original(*given, **named)

    Group.form = formed  # type: ignore[assignment, method-assign]
    setattr(owner, name, faulty)


def _let_the_gpu_repeat(error: Exception) -> None:
    """Let every later call of CUDA raise the error, as after a failure of the GPU. Of these calls one is made here."""

    class Stream:
        def query(self) -> bool:
            raise error

    torch.cuda.is_initialized = lambda: True
    torch.cuda.current_stream = lambda *_: Stream()  # type: ignore[assignment]
