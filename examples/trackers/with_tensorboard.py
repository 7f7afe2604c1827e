"""Loss, learning rate, workers and accuracy of a training in TensorBoard, with every point once.

tidewater run examples/trackers/with_tensorboard.py --board boards --min-step-seconds 0.1
tensorboard --logdir boards
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from torch.utils.tensorboard import SummaryWriter

import tidewater
from examples.elasticjob import train

Seen = tidewater.Report | tidewater.Evaluated


def flags(group: argparse._ArgumentGroup) -> None:
    """Add the flag of this script."""
    group.add_argument("--board", default="boards", help="folder for TensorBoard, which all workers can reach")


def training(config: tidewater.Config) -> tidewater.Training:
    """Return the training, with a tracker."""

    @contextlib.contextmanager
    def board(step: int) -> Iterator[Callable[[Seen], None]]:
        with SummaryWriter(f"{config.user.board}/{config.job}", purge_step=step) as writer:

            def write(seen: Seen) -> None:
                if isinstance(seen, tidewater.Evaluated):
                    values = {"accuracy": seen.score}
                else:
                    values = {"loss": seen.loss, "lr": seen.lr, "workers": seen.world_size}
                for name, value in values.items():
                    writer.add_scalar(name, value, seen.step)
                writer.flush()  # what is not in the file yet is lost together with this worker

            yield write

    tracker = tidewater.Tracker(board)
    return replace(train.training(config), on_step=tracker, on_evaluation=tracker)


if __name__ == "__main__":
    raise SystemExit(tidewater.run(training, flags=flags))
