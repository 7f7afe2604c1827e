"""What a training script brings, and what it is told of every step.

    def training(config: trainer.Config) -> trainer.Training:
        model = Net()
        return trainer.Training(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            dataset=Images(config.data),
            loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
        )

    raise SystemExit(trainer.run(training))

Everything else - who trains, who gets which samples, what is kept, where it goes on - is the runtime's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset


@dataclass(frozen=True)
class Report:
    """One step that is final: every worker of its generation has applied it, and no failure can undo it."""

    step: int
    """Counts from 1 over the whole job."""
    epoch: int
    """Epochs that were done after this step."""
    generation: int
    world_size: int
    rank: int
    """This worker's, as are ``samples``."""
    loss: float
    """Mean over all samples of the step."""
    lr: float
    """Learning rate of the optimizer's first parameter group."""
    samples: tuple[int, ...]
    """Indices into the dataset that this worker has contributed."""
    batch_size: int
    """Samples of all workers."""
    step_seconds: float
    """From the wait for the batch to the last gradient."""
    useful_seconds: float
    """The same and the wait before it by which ``--min-step-seconds`` slows training down."""


def constant(progress: float) -> float:
    """The schedule that changes nothing."""
    return 1.0


def ignore(report: Report) -> None:
    """The listener that does not listen."""


@dataclass(frozen=True)
class Training:
    """A model and how it is trained; made anew in every worker process, with equal values in all of them.

    Randomness in ``dataset[index]`` is seeded per sample and epoch by the runtime (torch's, Python's and numpy's
    generators), so that a sample is the same whoever prepares it; what ``collate`` draws depends on its batch's
    samples. Randomness in the model (dropout) is not seeded.
    """

    model: torch.nn.Module
    """On any device; the runtime moves it to this worker's."""
    optimizer: torch.optim.Optimizer
    """Over the model's parameters, all or some of them. ``schedule`` is applied to the learning rates it has now."""
    dataset: Dataset[Any]
    """Map-style: ``len(dataset)`` and ``dataset[index]``."""
    loss: Callable[[torch.nn.Module, Any], torch.Tensor]
    """``loss(model, batch)``: the mean over the batch, which is collated and on this worker's device."""
    schedule: Callable[[float], float] = constant
    """Factor on the learning rate at ``progress``, the share of all samples of all epochs that is done, in [0, 1]."""
    validation: Dataset[Any] | None = None
    score: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None
    """``score(model, batch)``: the sum over the batch, such as the number of right answers. Its total over
    ``validation``, divided by its length, is reported as accuracy."""
    collate: Callable[[list[Any]], Any] | None = None
    """torch's ``default_collate`` unless given."""
    stateful: Mapping[str, Any] = field(default_factory=dict)
    """Further objects with ``state_dict`` and ``load_state_dict`` that belong to the state: an average of the
    weights, say. They must change only in ``on_step``, and in the same way in all workers."""
    on_step: Callable[[Report], None] = ignore
    """Called for every final step, in order, by each worker that took part in it and is still there."""
