"""The model of the zoo as a `tidewater.Training`.

training(job, spec)(config)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from elasticdl.allreduce.evaluating import Evaluator
from elasticdl.allreduce.hooks import End, Following, Plan
from elasticdl.allreduce.records import Item, Records, fed
from elasticdl.allreduce.tables import hold_tables, whole
from elasticdl.job import JobArgs
from elasticdl.ps import checkpoint
from elasticdl.worker import assembly, exported
from elasticdl.worker.exported import Origin
from elasticdl.worker.step import buffers
from elasticdl.zoo.callbacks import LearningRateScheduler, learning_rate
from elasticdl.zoo.spec import Mode, ModelSpec
from tidewater import Config, Training

log = logging.getLogger(__name__)


def training(job: JobArgs, spec: ModelSpec) -> Callable[[Config], Training]:
    """Return the function that the trainer calls in each process, with the model's functions of the zoo.

    It raises InputError for data or values that can't be used.
    """

    def build(config: Config) -> Training:
        model = _model(job, spec)
        optimizer, scheduler = _optimizer(spec, model)
        following = _following(job, spec, model)
        return Training(
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            dataset=_records(job, spec, job.training_data, Mode.TRAINING),
            collate=_collate(spec),
            loss=lambda model, batch: spec.loss(batch[1], model(batch[0])),
            validation=End(),
            score=following.at_the_end,
            stateful={"elasticdl": following},
            on_step=following.on_step,
        )

    return build


def _model(job: JobArgs, spec: ModelSpec) -> torch.nn.Module:
    """Return the model with its first values: those of a checkpoint or an exported model, if one is named."""
    model = assembly.model_of(spec, job.seed)
    address = job.checkpoint_dir_for_init
    if address:
        found = checkpoint.load_model(address, say=log.info)
        assembly.put_values(model, found, address)
        log.info("The values are those of %s, version %d", address, found.version)
    return hold_tables(model)


def _optimizer(spec: ModelSpec, model: torch.nn.Module) -> tuple[torch.optim.Optimizer, tuple[LRScheduler, ...]]:
    """Return torch's optimizer, and what sets its learning rate if callbacks do."""
    if not any(isinstance(callback, LearningRateScheduler) for callback in spec.callbacks):
        return spec.optimizer.torch(model.parameters()), ()
    # With a rate of 1, the factor is the rate itself, to the bit.
    optimizer = spec.optimizer.with_lr(1.0).torch(model.parameters())
    default = spec.optimizer.lr
    return optimizer, (LambdaLR(optimizer, lambda step: learning_rate(spec.callbacks, step, default)),)


def _following(job: JobArgs, spec: ModelSpec, model: torch.nn.Module) -> Following:
    evaluator = None
    if job.validation_data:
        validation = _records(job, spec, job.validation_data, Mode.EVALUATION)
        evaluator = Evaluator(spec, validation, job.minibatch_size, log.info)
    plan = Plan(job.num_epochs, assembly.last_step(job, spec), job.log_loss_steps, job.evaluation_steps)
    return Following(plan, model, evaluator, lambda step: _export(job, model, step), log.info)


def _export(job: JobArgs, model: torch.nn.Module, step: int) -> None:
    if job.output:
        origin = Origin(job.model_def, job.model_params)
        exported.write(whole(model, step), origin, buffers=buffers(model), address=job.output)
        log.info("The model of version %d is in %s", step, job.output)


def _records(job: JobArgs, spec: ModelSpec, address: str, mode: Mode) -> Records:
    return Records(assembly.reader_of(job, spec, address), mode, address=address)


def _collate(spec: ModelSpec) -> Callable[[list[Any]], Any]:
    collate = fed(spec.feed)

    def of_the_end_too(items: list[Item | None]) -> tuple[Any, Any] | Mapping[str, Any]:
        found = [item for item in items if item is not None]
        return collate(found) if found else {}

    return of_the_end_too
