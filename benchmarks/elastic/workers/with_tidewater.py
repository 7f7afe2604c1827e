"""Elastic training by this project's own library.

python with_tidewater.py --job bench --etcd http://HOST:PORT --checkpoints DIR --batch-size 48
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from benchmarks.elastic.workers import common
from trainer import Config, Training, run
from trainer.training import Report


def training(config: Config) -> Training:
    """What is trained, and how."""
    recorder = common.Recorder.from_environment()

    def record(report: Report) -> None:
        recorder.committed(report.step, world=report.world_size, loss=report.loss, samples=report.batch_size)

    network = common.model()
    return Training(
        model=network,
        optimizer=common.optimizer_of(network),
        dataset=common.digits(),
        loss=loss,
        on_step=record,
    )


def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Cross entropy of a batch of images and labels."""
    return common.loss_of(model, *batch)


if __name__ == "__main__":
    sys.exit(run(training))
