"""Named moments at which a test can hit a worker, without any test code in the trainer.

    arm(folder, "fetch", "kill")          # in the test: kill this worker when it next starts to fetch the state
    was_hit(folder, "fetch")

    points = Points(folder); points.install()         # in the worker, before training starts

At each moment the worker looks for a file of the moment's name and does what the file says. This needs no thread and
no signal handler, and takes no measurable time of a step.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_rename = os.rename
"""The one that is not wrapped."""

STRIKES = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "leave": signal.SIGTERM}

STEP = ("gradients", "apply", "applied", "final")
"""The gradients are computed and have not left; before and after the optimizer's step; the step before is final."""
EPOCH_END = ("epoch-gradients", "epoch-final")
"""The same, in the last step of an epoch."""
EVALUATION = ("score", "evaluated")
"""A rank is about to compute its part of a round; the last round's sum is there."""
CHECKPOINT = ("save", "write")
"""A checkpoint is about to be taken; its files are there under a name that does not count yet."""
HANDOVER = ("fetch", "offer", "chunk")
"""A newcomer fetches the outline of the state; its peer has offered it; a chunk of the tensors is about to be sent."""
MEETING = ("form", "handover", *HANDOVER)
"""A generation begins: its group is being formed; positions are compared; a newcomer gets the state."""
RECOVERY = ("give-up",)
"""A survivor is about to tell the others that it has given the broken generation up."""
MIDDLE = "middle"
"""A rank is about to validate a sample of the second half: the first ones are in the sums. For the loss of all workers,
which no schedule has."""
ALL = (*STEP, *EPOCH_END, *EVALUATION, *CHECKPOINT, *MEETING, *RECOVERY)


def arm(folder: Path, point: str, strike: str) -> None:
    """Hit the worker of ``folder`` when it next reaches ``point``."""
    (folder / f"hit-{point}").unlink(missing_ok=True)  # from an earlier hit that the worker has survived
    draft = folder / f"draft-{point}"
    draft.write_text(strike)
    draft.rename(folder / f"armed-{point}")


def disarm(folder: Path, point: str) -> None:
    (folder / f"armed-{point}").unlink(missing_ok=True)


def was_hit(folder: Path, point: str) -> bool:
    return (folder / f"hit-{point}").exists()


class Points:
    """The worker's side."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def reach(self, point: str) -> None:
        """Do what is armed for ``point``, which this process has reached."""
        armed = f"{self._folder}/armed-{point}"
        try:
            with open(armed) as file:
                strike = file.read()
            _rename(armed, f"{self._folder}/hit-{point}")
        except FileNotFoundError:  # the point is not armed, or was disarmed just now
            return
        os.kill(os.getpid(), STRIKES[strike])

    def install(self) -> None:
        """Wrap the trainer's functions that mark a moment."""
        from tidewater.elastic.checkpoint import Checkpoints
        from tidewater.elastic.group.group import Group
        from tidewater.elastic.membership.coordinator import Coordinator
        from tidewater.elastic.peer import server
        from tidewater.elastic.session import handover
        from tidewater.elastic.session.evaluation import Evaluation

        # A worker that warms up forms a group of one, which is not a rendezvous.
        self._wrap(Group, "form", before="form", when=lambda group, uuid, rank, addresses, *more: len(addresses) > 1)
        self._wrap(handover, "synchronise", before="handover")
        self._wrap(server, "fetch", before="fetch")
        self._wrap(server.PeerServer, "offer", after="offer")
        self._wrap(Group, "broadcast", before="chunk")
        self._wrap(Coordinator, "ready_after", before="give-up")
        self._wrap(Evaluation, "finish", after="evaluated")
        self._wrap(Checkpoints, "save", before="save")
        self._wrap(os, "rename", before="write")
        self._wrap(os, "replace", before="write")

    def _wrap(
        self, owner: Any, name: str, *, before: str = "", after: str = "", when: Callable[..., bool] = lambda *_: True
    ) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            strikes = when(*args)
            if before and strikes:
                self.reach(before)
            result = original(*args, **kwargs)
            if after and strikes:
                self.reach(after)
            return result

        replace(original, wrapped)
        setattr(owner, name, wrapped)


def replace(original: Any, replacement: Any) -> None:
    """Put ``replacement`` in every module of the runtime that has imported ``original`` by name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] == "tidewater":
            for name, value in list(vars(module).items()):
                if value is original:
                    setattr(module, name, replacement)
