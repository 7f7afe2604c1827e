"""The end of an epoch and of a job: how good the model is, and the records by which everybody knows that it is done."""

from __future__ import annotations

import time
from typing import Any

import torch

from trainer.checkpoints import Checkpoints
from trainer.coordinator import Coordinator
from trainer.errors import StoreError
from trainer.log import Log
from trainer.parts import Parts

_CHUNK = 64


def evaluate(parts: Parts, rank: int, size: int) -> float | None:
    """The training's score per sample of its validation data; every rank does its share. None without such data.

    Raises GroupBroken when a peer fails meanwhile; nothing has changed then.
    """
    training, group = parts.training, parts.group
    if training.score is None or training.validation is None:
        return None
    data: Any = training.validation
    mine = range(rank, len(data), size)
    total = torch.zeros(1, dtype=torch.float64, device=group.device)
    training.model.eval()
    try:
        with torch.no_grad(), parts.stepper.precision():
            for start in range(0, len(mine), _CHUNK):
                group.check()
                batch = parts.loader.collate([data[index] for index in mine[start : start + _CHUNK]])
                total += training.score(training.model, batch).to(total)
    finally:
        training.model.train()
    group.all_reduce(total)
    return float(total.item()) / len(data)


def finish(record: bytes, checkpoints: Checkpoints, coordinator: Coordinator, log: Log) -> None:
    """Record the end on the volume and in etcd, for as long as it takes.

    The volume comes first: should this process die in between, the next one finds the end of training in the
    checkpoint and records it again.
    """
    while True:
        try:
            checkpoints.finish(record)
            coordinator.finish(record)
            return
        except (OSError, StoreError) as error:
            log.event("finish_delayed", error=str(error))
            time.sleep(1)
