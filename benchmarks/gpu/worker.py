"""The training script of three ranks on one GPU: a small network with batch normalization, and a ledger.

python worker.py --job bench --etcd http://HOST:PORT --checkpoints DIR --amp bf16

NCCL refuses two ranks on one device, so the group is gloo's, which takes CUDA tensors through the host's memory.
BENCH_OLD_TORCH=1 makes the trainer form new groups instead of giving a group new peers. If the file BENCH_FAIL names
this worker's node, its next step fails by an assertion on the device. With BENCH_STATE_MIB the state is that large, in
addition to the network's.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from benchmarks.elastic.workers import names, old_torch, record
from benchmarks.gpu.ledger import FAIL, FOLDER, OLD_TORCH, STATE_MIB, SUFFIX, TOTAL, Ledger
from tidewater import Config, Report, Training, run
from tidewater.elastic.group import gloo, group

_PIXELS, _CLASSES, _SEED = 8, 10, 20261123
_PIECE, _PIECE_MIB = "piece", 64

Sample = tuple[torch.Tensor, torch.Tensor, int]


class Numbered(Dataset[Sample]):
    """Random images and labels, and the number of the sample."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(_SEED)
        self._images = torch.randn(TOTAL, 1, _PIXELS, _PIXELS, generator=generator)
        self._labels = torch.randint(_CLASSES, (TOTAL,), generator=generator)

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> Sample:
        return self._images[index], self._labels[index], index


def network() -> nn.Module:
    """Return the network, with the same initial weights everywhere."""
    torch.manual_seed(_SEED)
    features = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten()]
    made = nn.Sequential(*features, nn.Linear(16 * _PIXELS**2, _CLASSES))
    mib = int(os.environ.get(STATE_MIB, "0"))
    for number in range(-(-mib // _PIECE_MIB)):
        piece = nn.Parameter(torch.full((_PIECE_MIB << 18,), float(number)), requires_grad=False)
        made.register_parameter(f"{_PIECE}{number}", piece)
    return made


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Return a digest of all values of the state but those that never change."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                found.update(str(key).encode())
                add(value[key])
        elif isinstance(value, list | tuple):
            for each in value:
                add(each)
        else:
            found.update(repr(value).encode())

    add({name: value for name, value in model.state_dict().items() if not name.startswith(_PIECE)})
    add(optimizer.state_dict()["state"])
    return found.hexdigest()[:16]


def through_gloo() -> None:
    """Let the trainer of this process sum by gloo on a GPU too."""
    module: Any = group
    module.nccl = gloo


def fail(device: torch.device) -> None:
    """Let a kernel fail its assertion, or raise what CUDA would where there is no GPU."""
    if device.type == "cuda":
        torch.zeros(1, device=device)[torch.tensor([1], device=device)].sum().item()
    raise torch.AcceleratorError("CUDA error: device-side assert triggered")


def training(_: Config) -> Training:
    """Return the training."""
    recorder = record.Recorder.from_environment()
    order = Path(os.environ[FAIL]) if FAIL in os.environ else None
    ledger = Ledger(Path(os.environ[FOLDER]) / f"{os.environ[names.NODE]}-{os.getpid()}{SUFFIX}")
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        images, labels, numbers = batch
        ledger.saw(numbers.tolist())
        if order and order.exists() and order.read_text() == os.environ[names.NODE]:
            fail(images.device)
        return nn.functional.cross_entropy(model(images), labels)

    def committed(report: Report) -> None:
        ledger.final(report, digest(model, optimizer))
        recorder.committed(report.step, world=report.world_size, loss=report.loss, samples=report.batch_size)

    return Training(model=model, optimizer=optimizer, dataset=Numbered(), loss=loss, on_step=committed)


if __name__ == "__main__":
    if os.environ.get(OLD_TORCH):
        old_torch.pretend()
    through_gloo()
    sys.exit(run(training))
