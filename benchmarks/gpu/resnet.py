"""ResNet-50 in bf16 on synthetic images: the trainer's time and memory for a step, compared with plain PyTorch's.

    python -m benchmarks.gpu.resnet ratio cuda            # the trainer and a plain loop in turns, in one process
    python -m benchmarks.gpu.resnet memory cuda           # the trainer and DistributedDataParallel, each in a process
    python -m benchmarks.gpu.resnet micro cuda            # the same with two micro-batches for each step

One worker trains with etcd and a group of one rank. The plain loop has the same model, images, optimizer and number of
processes that prepare data.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
from torch import distributed as dist
from torch import nn
from torch._C._distributed_c10d import TCPStore
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from benchmarks.elastic.systems import Site, etcd
from benchmarks.elastic.workers import names
from benchmarks.gpu.output import require, rows, tell
from benchmarks.gpu.three_ranks import ETCD
from tests.elastic.workers import free_port
from tests.processes import Process, wait_for_port
from tidewater import Config, Report, Training, run

POOL, CLASSES = 256, 1000
ETCD_SECONDS = 30.0
MEMORY_STEPS, COUNTED_FROM = 12, 6
MOST_MEMORY = 1.1
MIB = 1 << 20
TRAINER, PLAIN, DDP = "trainer", "plain PyTorch", "DistributedDataParallel"


@dataclass(frozen=True)
class Size:
    """How much is computed and how often."""

    pixels: int
    batch: int
    warm: int
    """Steps of each before the first turn."""
    turn: int
    """Steps of one turn."""
    turns: int
    workers: int
    """Processes that prepare data."""


SIZES = {
    "cuda": Size(pixels=224, batch=128, warm=20, turn=20, turns=9, workers=4),
    "cpu": Size(pixels=32, batch=4, warm=1, turn=1, turns=5, workers=0),
}


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Random images as bytes, in memory."""

    def __init__(self, size: Size, steps: int) -> None:
        self._pool = torch.randint(256, (POOL, 3, size.pixels, size.pixels), dtype=torch.uint8)
        self._length = steps * size.batch

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._pool[index % POOL], index % CLASSES


def network() -> nn.Module:
    """Return a ResNet-50."""
    from torchvision import models

    torch.manual_seed(0)
    made: nn.Module = models.resnet50().to(memory_format=torch.channels_last)
    return made


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return the usual optimizer. Its rate is low, because the smallest micro-batches here have two samples."""
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the cross entropy of images given as bytes."""
    images, labels = batch
    inputs = images.to(memory_format=torch.channels_last).float().div(255)
    return nn.functional.cross_entropy(model(inputs), labels)


def plain(
    size: Size, device: torch.device, steps: int, wrap: Callable[[nn.Module], nn.Module], parts: int = 1
) -> Iterator[None]:
    """Train as PyTorch's documentation does, one step for each `next`, with so many micro-batches."""
    model = wrap(network().to(device).train())
    optimizer = optimizer_of(model)
    loader = DataLoader(
        Images(size, steps), batch_size=size.batch, num_workers=size.workers, pin_memory=device.type == "cuda"
    )
    for images, labels in loader:
        batch = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        for number, part in enumerate(zip(*(each.chunk(parts) for each in batch), strict=True), start=1):
            apart = isinstance(model, DistributedDataParallel) and number < parts
            with cast("DistributedDataParallel", model).no_sync() if apart else contextlib.nullcontext():
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = loss_of(model, part) / parts
                torch.autograd.backward(loss)
        optimizer.step()
        yield


def settled(device: torch.device) -> float:
    """Return the time when the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


class Turns:
    """Lets a plain loop make as many steps after each turn of the trainer."""

    def __init__(self, size: Size, device: torch.device) -> None:
        self._size, self._device = size, device
        self._plain = plain(size, device, size.warm + size.turn * size.turns, lambda model: model)
        self._since = 0.0
        self.seconds: dict[str, list[float]] = {TRAINER: [], PLAIN: []}
        """For each turn."""

    def on_step(self, report: Report) -> None:
        """Take the plain loop's turn if the trainer's is over."""
        size = self._size
        number, rest = divmod(report.step - size.warm, size.turn)
        if rest or not 0 <= number <= size.turns:
            return
        begin = settled(self._device)
        for _ in range(size.turn if number else size.warm):
            next(self._plain)
        end = settled(self._device)
        if number:
            self.seconds[TRAINER].append((begin - self._since) / size.turn)
            self.seconds[PLAIN].append((end - begin) / size.turn)
        self._since = time.monotonic()


class Memory:
    """The most memory that a step needs: of the device, or of the process on the CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.mib = 0.0

    def step(self, number: int) -> None:
        """Note the end of a step."""
        if self._device.type == "cpu":
            self.mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        elif number == COUNTED_FROM:
            torch.cuda.reset_peak_memory_stats()
        elif number > COUNTED_FROM:
            self.mib = torch.cuda.max_memory_allocated() / MIB


def train(size: Size, steps: int, on_step: Callable[[Report], None], *more: str) -> None:
    """Train with the trainer: one worker, with an etcd of its own. `more`: arguments."""
    with tempfile.TemporaryDirectory(prefix="resnet-") as temporary, contextlib.ExitStack() as ends:
        folder, port = Path(temporary), free_port()
        site = Site(Path(sys.executable), Path(os.environ[ETCD]), Path(), Path(), folder, 1, checkpoint_every=10**9)
        service = Process("etcd", etcd(site, port), {}, folder)
        ends.callback(service.end)
        require(wait_for_port(port, ETCD_SECONDS), f"etcd answers:\n{service.last_lines()}")

        def training(_: Config) -> Training:
            model = network()
            images = Images(size, steps)
            return Training(model=model, optimizer=optimizer_of(model), dataset=images, loss=loss_of, on_step=on_step)

        code = run(
            training,
            [
                *("--job", "resnet", "--etcd", f"http://{names.HOST}:{port}", "--host", names.HOST),
                *("--checkpoints", str(folder / "checkpoints"), "--checkpoint-minutes", "0"),
                *("--epochs", "1", "--batch-size", str(size.batch), "--amp", "bf16"),
                *("--data-workers", str(size.workers), "--report-every", "100", *more),
            ],
        )
        require(code == 0, f"the trainer finishes (its exit code is {code})")


def ratio(name: str) -> None:
    """Compare the time of a step."""
    size, device = SIZES[name], torch.device(name)
    torch.backends.cudnn.benchmark = True
    turns = Turns(size, device)
    # One more, because a step is reported in the middle of the next one, which the last one doesn't have.
    train(size, size.warm + size.turn * size.turns + 1, turns.on_step)
    require(len(turns.seconds[PLAIN]) == size.turns, "every turn of the trainer is followed by the plain loop's")
    for who, seconds in turns.seconds.items():
        tell("ResNet-50, bf16: step", who, [1000 * each for each in seconds], "ms")
        tell("ResNet-50, bf16: images per second", who, [size.batch / statistics.median(seconds)], "images/s")
    both = zip(turns.seconds[TRAINER], turns.seconds[PLAIN], strict=True)
    tell("ResNet-50, bf16: step / plain PyTorch's", TRAINER, [mine / theirs for mine, theirs in both], "ratio")


def memory_of_trainer(name: str, parts: int = 1) -> None:
    """Print the trainer's memory."""
    size, memory = SIZES[name], Memory(torch.device(name))
    micro = ("--micro-batch", str(size.batch // parts))
    train(size, MEMORY_STEPS, lambda report: memory.step(report.step), *micro)
    tell(memory_row(parts), TRAINER, [memory.mib], "MiB")


def memory_of_ddp(name: str, parts: int = 1) -> None:
    """Print DistributedDataParallel's memory. Its gradients are views of its buckets, with which it needs least."""
    device = torch.device(name)
    memory = Memory(device)
    store = TCPStore(names.HOST, 0, 1, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    dist.init_process_group("nccl" if name == "cuda" else "gloo", store=store, rank=0, world_size=1)

    def wrap(model: nn.Module) -> nn.Module:
        return DistributedDataParallel(model, gradient_as_bucket_view=True)

    for number, _ in enumerate(plain(SIZES[name], device, MEMORY_STEPS, wrap, parts), start=1):
        memory.step(number)
    tell(memory_row(parts), DDP, [memory.mib], "MiB")
    dist.destroy_process_group()


def memory_row(parts: int) -> str:
    """Return the name of the measure."""
    return "ResNet-50, bf16: memory of a step" + (f" of {parts} micro-batches" if parts > 1 else "")


def memory(name: str, parts: int = 1) -> float:
    """Compare the memory, each in a process of its own. Return the trainer's over DistributedDataParallel's."""
    mib = []
    for part in ("memory-trainer", "memory-ddp"):
        command = [sys.executable, "-m", "benchmarks.gpu.resnet", part, name, str(parts)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, end="")
        require(done.returncode == 0, f"{part} ends with 0 (it ended with {done.returncode})")
        mib += [found.values[0] for found in rows(done.stdout)]
    tell(f"{memory_row(parts)} / DistributedDataParallel's", TRAINER, [mib[0] / mib[1]], "ratio")
    return mib[0] / mib[1]


def micro(name: str) -> None:
    """Compare the memory of a step of two micro-batches. On the CPU it is that of the whole process."""
    found = memory(name, 2)
    require(name == "cpu" or found <= MOST_MEMORY, f"the memory is at most {MOST_MEMORY} times DDP's")


PARTS: dict[str, Callable[..., Any]] = {
    "ratio": ratio,
    "memory": memory,
    "micro": micro,
    "memory-trainer": memory_of_trainer,
    "memory-ddp": memory_of_ddp,
}


if __name__ == "__main__":
    if sys.argv[2] == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    PARTS[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
