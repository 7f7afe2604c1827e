"""The end of a job: how good the model is, and the records by which everybody knows that it is done."""

from __future__ import annotations

import time

import torch
from torch import nn

from trainer.checkpoint import Checkpoints
from trainer.coordinator import Coordinator
from trainer.data import ImageFolder
from trainer.errors import StoreError
from trainer.log import Log

_CHUNK = 256


def evaluate(model: nn.Module, data: ImageFolder, device: torch.device) -> float:
    """Share of the images that the model classifies right."""
    right = 0
    model.eval()
    with torch.no_grad():
        for start in range(0, len(data), _CHUNK):
            images, labels = data.batch(tuple(range(start, min(start + _CHUNK, len(data)))))
            right += int((model(images.to(device)).argmax(1).cpu() == labels).sum())
    model.train()
    return right / len(data)


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
