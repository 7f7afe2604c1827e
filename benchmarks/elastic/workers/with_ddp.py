"""Plain data-parallel training, without any provision for failures: what the others are measured against.

torchrun --standalone --nproc-per-node=3 with_ddp.py
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from benchmarks.elastic.workers import common, names


def main() -> None:
    """Trains until it is killed."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    recorder = common.Recorder.from_environment(str(rank))
    dataset = common.digits()
    model = DistributedDataParallel(common.model())
    optimizer = common.optimizer_of(model)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=names.GLOBAL_BATCH // world, sampler=sampler)
    step = 0
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = common.loss_of(model, images, labels)
            torch.autograd.backward(loss)
            optimizer.step()
            step += 1
            recorder.committed(step, world=world, loss=loss.item(), samples=len(labels) * world)


if __name__ == "__main__":
    main()
