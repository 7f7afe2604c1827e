"""The same training as `with_tidewater.py`, with a loop of the script's own.

python with_own_loop.py --job bench --etcd http://HOST:PORT --checkpoints DIR --batch-size 48
"""

from __future__ import annotations

import sys

import tidewater
from benchmarks.elastic.workers import record, task


def main() -> int:
    """Train until the process is killed."""
    config = tidewater.init()
    recorder = record.Recorder.from_environment()

    def committed(report: tidewater.Report) -> None:
        recorder.committed(report.step, world=report.world_size, loss=report.loss, samples=report.batch_size)

    network = task.model()
    optimizer, dataset = task.optimizer_of(network), task.digits()
    with tidewater.session(config, model=network, optimizer=optimizer, dataset=dataset, on_step=committed) as run:
        for images, labels in run.batches():
            run.step(task.loss_of(network, images, labels))
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main())
