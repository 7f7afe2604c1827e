"""Fault-tolerant training with torchft, based on its `train_ddp.py`: one replica group per worker.

TORCHFT_LIGHTHOUSE=http://HOST:PORT REPLICA_GROUP_ID=0 NUM_REPLICA_GROUPS=3 python with_torchft.py
"""

import itertools
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import GradBucket, TCPStore
from torch.utils.data import default_collate
from torchft import (  # type: ignore[import-not-found,unused-ignore]
    DistributedDataParallel,
    DistributedSampler,
    Manager,
    Optimizer,
    ProcessGroupGloo,
)

from benchmarks.elastic.workers import names, record, task


class Model(DistributedDataParallel):  # type: ignore[misc,unused-ignore]
    """torchft's class with another communication hook.

    With gloo, the hook of torchft 0.2.0 ends the process with an AssertionError when a peer is lost during a step: it
    requests a future that doesn't exist if the wait fails. So all survivors would end with the killed worker.
    torch evaluates the annotations, so this file has no postponed ones.
    """

    @staticmethod
    def _comm_hook(state: Manager, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        state.allreduce(bucket.buffer()).wait()  # the manager handles errors: it does not commit the step
        done = torch.futures.Future[torch.Tensor]()
        done.set_result(bucket.buffer())
        return done


class Batches:
    """This worker's share of the global batch, which is the same at any number of workers, as with the other systems.

    torchft's example has a fixed batch per worker, so there fewer workers would train on fewer samples. The share
    depends on the number of workers in the step before: this step's is known only when its quorum is there, and torchft
    computes during that wait. So the first step after each change has a batch of the wrong size.
    """

    def __init__(self, dataset: task.Digits, sampler: DistributedSampler, workers: int) -> None:
        self._dataset, self.workers = dataset, workers
        self._indices: Iterator[int] = itertools.chain.from_iterable(itertools.repeat(sampler))

    def next(self) -> list[torch.Tensor]:
        """Return images and labels."""
        share = itertools.islice(self._indices, names.GLOBAL_BATCH // self.workers)
        batch: list[torch.Tensor] = default_collate([self._dataset[index] for index in share])
        return batch


def main() -> None:
    """Train until the process is killed."""
    replica, replicas = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
    recorder = record.Recorder.from_environment()
    dataset, network = task.digits(), task.model()
    sampler = DistributedSampler(
        dataset, replica_rank=replica, num_replica_groups=replicas, group_rank=0, num_replicas=1, shuffle=True
    )
    batches = Batches(dataset, sampler, replicas)

    def load_state_dict(state: dict[str, Any]) -> None:
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optim"])

    def state_dict() -> dict[str, Any]:
        return {"model": network.state_dict(), "optim": optimizer.state_dict()}

    # The store of the replica group, which torchrun would start.
    store = TCPStore(names.HOST, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=names.TORCHFT_GROUP_SECONDS)),
        min_replica_size=1,
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        replica_id=f"train_ddp_{replica}",
        timeout=timedelta(seconds=names.TORCHFT_SECONDS),
        quorum_timeout=timedelta(seconds=names.TORCHFT_QUORUM_SECONDS),
        rank=0,
        world_size=1,
        store_addr=names.HOST,
        store_port=store.port,
        hostname=names.HOST,
    )
    model = Model(manager, network)
    optimizer = Optimizer(manager, task.optimizer_of(network))
    while True:
        images, labels = batches.next()
        before = manager.current_step()
        optimizer.zero_grad()
        loss = task.loss_of(model, images, labels)
        torch.autograd.backward(loss)
        optimizer.step()
        batches.workers = world = max(1, manager.num_participants())
        if manager.current_step() > before:
            recorder.committed(manager.current_step(), world=world, loss=loss.item(), samples=len(labels) * world)


if __name__ == "__main__":
    main()
