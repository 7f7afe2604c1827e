"""Elastic training as torchrun's documentation describes it: checkpoints, and a resume after every restart.

torchrun --nnodes=1:3 --max-restarts=1000 --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT with_torchrun.py
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from benchmarks.elastic.workers import names, record, task


def main() -> None:
    """Train until the process is killed."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    recorder = record.Recorder.from_environment()
    dataset, network = task.digits(), task.model()
    optimizer = task.optimizer_of(network)
    file, every = Path(os.environ[names.CHECKPOINTS]) / "last.pt", int(os.environ[names.CHECKPOINT_EVERY])
    step = load(file, network, optimizer)
    model = DistributedDataParallel(network)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=names.GLOBAL_BATCH // world, sampler=sampler)
    for epoch in itertools.count(step // len(loader)):
        sampler.set_epoch(epoch)
        for images, labels in itertools.islice(loader, step % len(loader), None):
            optimizer.zero_grad()
            loss = task.loss_of(model, images, labels)
            torch.autograd.backward(loss)
            optimizer.step()
            step += 1
            if rank == 0 and step % every == 0:
                save(file, network, optimizer, step)
            recorder.committed(step, world=world, loss=loss.item(), samples=len(labels) * world)


def save(file: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save a checkpoint atomically."""
    draft = file.with_suffix(".draft")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, draft)
    draft.replace(file)


def load(file: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the last checkpoint. Return its step; 0 if there is none."""
    if not file.exists():
        return 0
    state: dict[str, Any] = torch.load(file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


if __name__ == "__main__":
    main()
