"""Training of a divided model with plain PyTorch, as its documentation of ``fully_shard`` describes it.

torchrun --standalone --nproc-per-node=2 with_fsdp.py
"""

from __future__ import annotations

import itertools
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from benchmarks.elastic.workers import names, record
from benchmarks.elastic.workers.divided import task


def main() -> None:
    """Train until the process is killed."""
    dist.init_process_group("gloo")
    rank, processes, step = dist.get_rank(), dist.get_world_size(), 0
    recorder = record.Recorder.from_environment(writes=rank == 0)
    dataset, network = task.Texts(), task.model(init_device_mesh("cpu", (processes,)))
    optimizer = task.optimizer_of(network)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=names.DIVIDED_BATCH // processes, sampler=sampler)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for texts in loader:
            optimizer.zero_grad()
            loss = task.passes(network, texts)
            optimizer.step()
            step += 1
            recorder.committed(step, world=1, loss=loss.item(), samples=names.DIVIDED_BATCH)


if __name__ == "__main__":
    main()
