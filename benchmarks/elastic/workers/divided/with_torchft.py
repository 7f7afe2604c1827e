"""Fault-tolerant training of divided models with torchft: the processes of a replica group divide one model.

As in torchft's `fsdp_test.py` and torchtitan's `components/ft/manager.py`, `fully_shard` divides the model, and its
all-reduce hook averages the divided gradients over the replica groups, by torchft's managed process group.

TORCHFT_LIGHTHOUSE=http://HOST:PORT REPLICA_GROUP_ID=0 NUM_REPLICA_GROUPS=2 \
    torchrun --standalone --nproc-per-node=2 with_torchft.py
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils.data import default_collate
from torchft import (  # type: ignore[import-not-found,unused-ignore]
    DistributedSampler,
    Manager,
    Optimizer,
    ProcessGroupGloo,
)
from torchft.process_group import ManagedProcessGroup  # type: ignore[import-not-found,unused-ignore]

from benchmarks.elastic.workers import names, record
from benchmarks.elastic.workers.divided import task


def main() -> None:
    """Train until the process is killed."""
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    replica, replicas = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
    recorder = record.Recorder.from_environment(writes=rank == 0)
    dataset, network = task.Texts(), task.model(init_device_mesh("cpu", (processes,)))
    sampler = DistributedSampler(
        dataset, replica_rank=replica, num_replica_groups=replicas, group_rank=rank, num_replicas=processes
    )
    indices: Iterator[int] = itertools.chain.from_iterable(itertools.repeat(sampler))

    # torchft asks for the state in another thread, while the model has whole parameters in its passes.
    parts = dict(network.named_parameters())

    def load_state_dict(state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, parameter in parts.items():
                of(parameter).copy_(state["model"][name])
        stored = state["optim"]
        for parameter, moments in zip(parts.values(), stored["state"].values(), strict=False):
            for name, value in moments.items():
                moments[name] = divided(value, parameter) if value.dim() else value
        optimizer.load_state_dict(stored)

    def state_dict() -> dict[str, Any]:
        optim = optimizer.state_dict()
        moments = {key: {name: of(each) for name, each in values.items()} for key, values in optim["state"].items()}
        model = {name: of(parameter.detach()) for name, parameter in parts.items()}
        return {"model": model, "optim": {**optim, "state": moments}}

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=names.TORCHFT_GROUP_SECONDS)),
        min_replica_size=1,
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        replica_id=f"train_fsdp_{replica}",
        timeout=timedelta(seconds=names.TORCHFT_SECONDS),
        quorum_timeout=timedelta(seconds=names.TORCHFT_QUORUM_SECONDS),
        hostname=names.HOST,
    )
    group = ManagedProcessGroup(manager)
    group.register("dp_replicate")

    def average(gradients: torch.Tensor) -> None:
        dist.all_reduce(gradients, group=group, op=dist.ReduceOp.AVG)

    for layer in network.modules():
        if isinstance(layer, FSDPModule):
            layer.set_all_reduce_hook(average)
    optimizer, workers = Optimizer(manager, task.optimizer_of(network)), replicas
    while True:
        # As in the other script with torchft, a share of the global batch, by the number of workers in the step before.
        share = names.DIVIDED_BATCH // (workers * processes)
        texts = default_collate([dataset[index] for index in itertools.islice(indices, share)])
        before = manager.current_step()
        optimizer.zero_grad()
        loss = task.passes(network, texts)
        optimizer.step()
        workers = max(1, manager.num_participants())
        if manager.current_step() > before:
            samples = share * processes * workers
            recorder.committed(manager.current_step(), world=workers, loss=loss.item(), samples=samples)


def of(value: Any) -> Any:
    """Return this process's part of a divided tensor; any other tensor as it is."""
    return value.to_local() if isinstance(value, DTensor) else value


def divided(part: torch.Tensor, model: Any) -> DTensor:
    """Return the divided tensor of the same kind as ``model`` with that part."""
    made: DTensor = DTensor.from_local(
        part, model.device_mesh, model.placements, run_check=False, shape=model.shape, stride=model.stride()
    )
    return made


if __name__ == "__main__":
    main()
