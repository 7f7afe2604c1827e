"""What all the benchmark's training scripts share: the model, the data, and the record of committed steps.

    recorder = Recorder.from_environment()
    recorder.committed(step, world=3, loss=0.41, samples=48)

The driver (`python -m benchmarks.elastic`) tells a worker by environment variables where to record, so that the
scripts' command lines stay what a user of each system would write.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from benchmarks.elastic.workers import names
from trainer.lifeline import bound_to
from trainer.model import SmallCNN

if TYPE_CHECKING:
    from torch import Tensor

LR = 2e-3
SEED = 0

_GATE_POLL_SECONDS = 0.02


class Recorder:
    """Writes one line per committed step to a file of this process, and holds training at the gate.

    The gate is a number in a file: no worker goes on from that step until it is raised. So several jobs can stand
    ready on one machine while one of them runs.
    """

    def __init__(self, file: Path, gate: Path) -> None:
        # Unbuffered: a worker that is killed has recorded what it had committed.
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with gate.open("rb") as opened:
            self._gate = mmap.mmap(opened.fileno(), names.GATE_BYTES, access=mmap.ACCESS_READ)

    @classmethod
    def from_environment(cls, node: str = "") -> Recorder:
        """The recorder of worker `node` (the driver's BENCH_NODE unless given); this process ends with its parent."""
        bound_to(os.getppid())()
        torch.set_num_threads(1)
        torch.manual_seed(SEED)
        name = f"{node or os.environ[names.NODE]}-{os.getpid()}.steps"
        return cls(Path(os.environ[names.OUT]) / name, Path(os.environ[names.GATE]))

    def committed(self, step: int, *, world: int, loss: float, samples: int) -> None:
        """Note a step that no failure can undo any more, but for going back to a checkpoint."""
        os.write(self._file, f"{step} {world} {time.monotonic_ns()} {loss:.6f} {samples}\n".encode())
        while step >= struct.unpack(names.GATE_FORMAT, self._gate[: names.GATE_BYTES])[0]:
            time.sleep(_GATE_POLL_SECONDS)


class Digits(Dataset[tuple["Tensor", "Tensor"]]):
    """The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels, in memory."""

    def __init__(self, file: Path) -> None:
        stored = np.load(file)
        self._images, self._labels = torch.from_numpy(stored["images"]), torch.from_numpy(stored["labels"])

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._images[index], self._labels[index]


def digits() -> Digits:
    """The data that the driver has prepared."""
    return Digits(Path(os.environ[names.DATA]))


def model() -> SmallCNN:
    """The network, with the same initial weights everywhere."""
    torch.manual_seed(SEED)
    return SmallCNN(channels=1, classes=10, width=int(os.environ[names.WIDTH]))


def loss_of(network: torch.nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy, after the time that an accelerator would take beside the processor's own work."""
    loss = cross_entropy(network(images), labels)
    time.sleep(float(os.environ[names.DEVICE_SECONDS]))
    return loss


def optimizer_of(network: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of all the scripts."""
    return torch.optim.AdamW(network.parameters(), lr=LR)
