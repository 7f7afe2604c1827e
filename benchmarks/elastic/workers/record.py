"""The record of committed steps, which the driver evaluates, and the gate with which it stops training.

recorder = Recorder.from_environment()
recorder.committed(step, world=3, loss=0.41, samples=48)
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

import torch

from benchmarks.elastic.workers import names, task
from benchmarks.elastic.workers.plain_steps import PlainSteps
from tidewater.elastic.launch.lifeline import bound_to

_GATE_POLL_SECONDS = 0.02


class Recorder:
    """Writes one line per committed step to a file of this process, and stops training at the gate.

    The gate is a number in a file: no worker continues after that step until the number is increased. So several jobs
    can exist on one machine while one of them runs.
    """

    def __init__(self, file: Path, gate: Path, plain: PlainSteps | None = None, *, writes: bool = True) -> None:
        self._writes = writes
        # Unbuffered, so that a killed worker has recorded all its committed steps.
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with gate.open("rb") as opened:
            self._gate = mmap.mmap(opened.fileno(), names.GATE_BYTES, access=mmap.ACCESS_READ)
        self._plain = plain

    @classmethod
    def from_environment(cls, node: str = "", *, writes: bool = True) -> Recorder:
        """Return the recorder of worker `node` (BENCH_NODE by default), and bind this process to its parent.

        One process of a worker `writes`, and the others wait in their collectives while it waits at the gate.
        """
        bound_to(os.getppid())()
        torch.set_num_threads(1)
        torch.manual_seed(task.SEED)
        out, node = Path(os.environ[names.OUT]), node or os.environ[names.NODE]
        plain = PlainSteps.from_environment(int(node))
        return cls(out / f"{node}-{os.getpid()}.steps", Path(os.environ[names.GATE]), plain, writes=writes)

    def committed(self, step: int, *, world: int, loss: float, samples: int) -> None:
        """Record a step that only a return to a checkpoint can undo."""
        if not self._writes:
            return
        at = time.monotonic_ns()
        os.write(self._file, f"{step} {world} {at} {loss:.6f} {samples}\n".encode())
        while step >= struct.unpack(names.GATE_FORMAT, self._gate[: names.GATE_BYTES])[0]:
            time.sleep(_GATE_POLL_SECONDS)
        if self._plain:
            self._plain.step(world, at)
