"""What a training script provides, and what it learns about every step.

    def training(config: tidewater.Config) -> tidewater.Training:
        model = Net()
        return tidewater.Training(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            dataset=Images(config.data),
            loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
        )

    raise SystemExit(tidewater.run(training))

The runtime does everything else: it decides who trains on which samples, what is saved, and where training continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset


@dataclass(frozen=True)
class Report:
    """One step that is final: every worker of its generation has applied it, and no failure can undo it."""

    step: int
    """Counts from 1 over the whole job."""
    epoch: int
    """Number of finished epochs after this step."""
    generation: int
    world_size: int
    rank: int
    """The rank of this worker in this step; -1 if it took no part (see ``on_step``)."""
    loss: float
    """Mean over all samples of the step, or over their weights."""
    lr: float
    """Learning rate of the first optimizer's first parameter group."""
    samples: tuple[int, ...]
    """Indices into the dataset that this worker contributed; of a stream, their numbers in the pass, from 0."""
    batch_size: int
    """Number of samples of all workers together."""
    step_seconds: float
    """Seconds from the wait for the batch to the last gradient."""
    useful_seconds: float
    """``step_seconds`` plus the wait for ``--min-step-seconds`` before it."""
    wait_seconds: float = 0.0
    """Those of ``step_seconds`` for which this worker had done its part and waited for the others. The slowest waits
    least."""
    writes: bool = False
    """Whether this worker is the one that writes for the job: rank 0 when the step became final. See ``Tracker``."""


@dataclass(frozen=True)
class Evaluated:
    """One evaluation of the model, with the same result in all workers."""

    step: int
    """The model is as after this step."""
    epoch: int
    """Number of finished epochs."""
    score: float
    """Mean over the validation data."""
    writes: bool = False
    """Whether this worker is the one that writes for the job. See ``Tracker``."""


class Stop(Exception):
    """Raised by ``on_step`` or ``on_evaluation``, with the reason, to end the training of all workers.

    If one worker raises it, all end with the same state: the job is finished, with an evaluation and a final
    checkpoint, and each worker returns the exit code 0. After ``on_evaluation`` no further step is made, after
    ``on_step`` at most two, because the others learn of it with their next sums.
    """


def constant(progress: float) -> float:
    """Return 1: this schedule does not change the learning rate."""
    return 1.0


def ignore(report: object) -> None:
    """Do nothing with the report."""


@dataclass(frozen=True)
class Training:
    """A model and how it is trained. Every worker process creates one, with the same values.

    The runtime seeds the random generators of torch, Python and numpy for each sample and epoch. So ``dataset[index]``
    gives the same sample in every process, and what ``collate`` draws depends only on the samples of its batch.
    What ``loss`` and the model draw (dropout) depends on the seed, the step, the rank and the micro-batch. What
    ``before_step``, the optimizer's step and ``on_step`` draw is the same in all workers.
    """

    model: torch.nn.Module
    """On any device; the runtime moves it to the device of this worker."""
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
    """Over all or some of the model's parameters. Of several, each has its own parameters and is stepped every step."""
    dataset: Dataset[Any]
    """Map-style: ``len(dataset)`` and ``dataset[index]``; or an IterableDataset that has ``state_dict`` and
    ``load_state_dict``, with which it continues after any of its samples. All workers read all of it."""
    loss: Callable[[torch.nn.Module, Any], torch.Tensor | tuple[torch.Tensor, torch.Tensor | float]]
    """``loss(model, batch)``: the mean over the batch, which is collated and on the device of this worker.

    Or a pair, the sum over the batch and its weight, such as its number of tokens without padding. The loss of a step
    is then the total of the sums over all workers, divided by the total of the weights."""
    schedule: Callable[[float], float] = constant
    """Factor on the initial learning rates at ``progress``, the share of the training that is done, from 0 to 1: of all
    samples of all epochs, or of ``--max-steps`` if that ends it earlier."""
    scheduler: LRScheduler | Sequence[LRScheduler] = ()
    """torch's schedulers, instead of ``schedule``. Each is stepped once after every step."""
    before_step: Callable[[torch.nn.Module], object] | None = None
    """Called with the model before every step of the optimizers, when the gradients in its parameters are those of the
    whole step, without the factor of ``--amp fp16``; clips them, for example. It must do the same in all workers.
    A learning rate that it sets is used in this step only; set one that lasts in ``on_step``."""
    validation: Dataset[Any] | None = None
    score: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None
    """``score(model, batch)``: the sum over the batch, such as the number of correct answers. The total over
    ``validation``, divided by its length, is reported as accuracy."""
    keep_best: Literal["", "max", "min"] = ""
    """Keep the checkpoint with the highest (``max``) or lowest (``min``) score, in addition to the newest ones."""
    collate: Callable[[list[Any]], Any] | None = None
    """torch's ``default_collate`` unless given."""
    stateful: Mapping[str, Any] = field(default_factory=dict)
    """Further objects with ``state_dict`` and ``load_state_dict`` that belong to the state, for example an average of
    the weights. ``docs/training/promises.md`` says which values can be stored. Change them only in ``on_step`` (for
    every report) and ``on_evaluation``, in the same way in all workers: without a report's rank, samples or seconds."""
    on_step: Callable[[Report], None] = ignore
    """Called once for every final step, in order, in each worker that took part in it, has its result and is still
    running; the model is as after that step. The passes of the next step have been made, unless an evaluation or the
    end of training comes first. A worker that gets the state after a step while it is not reported yet is called too,
    with rank -1 and no samples, so that its ``stateful`` objects change alike. If all workers were lost, steps since
    the checkpoint are repeated, and reported again. Raise ``Stop`` to end training."""
    on_evaluation: Callable[[Evaluated], None] = ignore
    """Called after every evaluation, in each worker that took part in its end. Raise ``Stop`` to end training."""


@dataclass(frozen=True)
class Learner:
    """What a session needs of a ``Training``, for a loop that computes gradients by itself."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
    schedule: Callable[[float], float] = constant
    scheduler: LRScheduler | Sequence[LRScheduler] = ()
    before_step: Callable[[torch.nn.Module], object] | None = None
    stateful: Mapping[str, Any] = field(default_factory=dict)
    on_step: Callable[[Report], None] = ignore


AnyTraining = Training | Learner
