"""Elastic training of a divided model with Tidewater.

python with_tidewater.py --job bench --etcd http://HOST:PORT --checkpoints DIR --shard 2 --batch-size 16
"""

from __future__ import annotations

import sys

from benchmarks.elastic.workers import record
from benchmarks.elastic.workers.divided import task
from tidewater import Config, Training, run
from tidewater.elastic.training import Report


def training(config: Config) -> Training:
    """Return the training."""
    recorder = record.Recorder.from_environment(writes=config.index == 0)

    def committed(report: Report) -> None:
        recorder.committed(report.step, world=report.world_size, loss=report.loss, samples=report.batch_size)

    network = task.model(config.mesh)
    return Training(
        model=network,
        optimizer=task.optimizer_of(network),
        dataset=task.Texts(),
        loss=task.loss_of,
        on_step=committed,
    )


if __name__ == "__main__":
    sys.exit(run(training))
