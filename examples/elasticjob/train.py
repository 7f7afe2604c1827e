"""A training without a dataset, to try out ElasticJobs: a small network learns which of two numbers is larger.

    python3 -m examples.elasticjob.train --checkpoints /tmp/checkpoints --min-step-seconds 0.1

In an ElasticJob with `launcher: tidewater`, the controller sets the job's name, etcd and the number of workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewater import Config, Training, run

if TYPE_CHECKING:
    import torch
    from torch import nn

SAMPLES = 4096
_HIDDEN = 16
_LEARNING_RATE = 0.05

Batch = tuple["torch.Tensor", "torch.Tensor"]


def training(config: Config) -> Training:
    """Return the training. Every worker makes the same numbers."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    numbers = torch.rand(SAMPLES, 2, generator=torch.Generator().manual_seed(config.seed))
    labels = (numbers[:, 0] > numbers[:, 1]).long()
    model = nn.Sequential(nn.Linear(2, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 2))

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def right(model: nn.Module, batch: Batch) -> torch.Tensor:
        hits: torch.Tensor = model(batch[0]).argmax(1) == batch[1]
        return hits.sum()

    data = TensorDataset(numbers, labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE, momentum=0.9)
    return Training(model=model, optimizer=optimizer, dataset=data, loss=loss, validation=data, score=right)


if __name__ == "__main__":
    raise SystemExit(run(training))
