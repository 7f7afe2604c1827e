"""Elastic training with Tidewater.

python with_tidewater.py --job bench --etcd http://HOST:PORT --checkpoints DIR --batch-size 48
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from benchmarks.elastic.workers import record, task
from tidewater import Config, Training, run
from tidewater.elastic.training import Report


def training(config: Config) -> Training:
    """Return the training."""
    recorder = record.Recorder.from_environment()

    def committed(report: Report) -> None:
        recorder.committed(report.step, world=report.world_size, loss=report.loss, samples=report.batch_size)

    network = task.model()
    return Training(
        model=network,
        optimizer=task.optimizer_of(network),
        dataset=task.digits(),
        loss=loss,
        on_step=committed,
    )


def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Return the cross entropy of a batch of images and labels."""
    return task.loss_of(model, *batch)


if __name__ == "__main__":
    sys.exit(run(training))
