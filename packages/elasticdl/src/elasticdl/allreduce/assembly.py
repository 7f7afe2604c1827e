"""The model of the zoo as a `tidewater.Training`.

training(job, spec)(config)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from elasticdl import layers
from elasticdl.allreduce.evaluating import Evaluator
from elasticdl.allreduce.hooks import End, Following, Plan
from elasticdl.allreduce.records import Item, Records, fed
from elasticdl.embedding_init import Table
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, Strategy
from elasticdl.layers import Embedding
from elasticdl.ps import checkpoint
from elasticdl.ps.checkpoint import Model, TableRows
from elasticdl.worker import assembly, exported
from elasticdl.worker.exported import Origin
from elasticdl.worker.step import buffers
from elasticdl.worker.trial import try_metrics
from elasticdl.zoo.callbacks import LearningRateScheduler, learning_rate
from elasticdl.zoo.spec import Mode, ModelSpec
from tidewater import Config, Training

log = logging.getLogger(__name__)


def training(job: JobArgs, spec: ModelSpec) -> Callable[[Config], Training]:
    """Return the function that the trainer calls in each process, with the model's functions of the zoo.

    It raises InputError for data or values that can't be used.
    """

    def build(config: Config) -> Training:
        try_metrics(job, spec)
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


class HeldEmbedding(Embedding):
    """An embedding that keeps its rows in a parameter. Layers with the same table share it."""

    def __init__(self, layer: Embedding, weight: nn.Parameter) -> None:
        super().__init__(layer.table, combiner=layer.combiner, padding_id=layer.padding_id)
        self.weight = weight

    # The rows are in the parameter: torch then leaves the extra state out of state_dict.
    get_extra_state = nn.Module.get_extra_state
    set_extra_state = nn.Module.set_extra_state

    def _vectors(self, ids: torch.Tensor, is_padding: torch.Tensor) -> torch.Tensor:
        vectors = nn.functional.embedding(ids.masked_fill(is_padding, 0), self.weight)
        return vectors.masked_fill(is_padding.unsqueeze(-1), 0.0)


def hold_tables(model: nn.Module) -> nn.Module:
    """Return the model with its embedding tables as parameters; it is another object if it is such a layer itself.

    All rows exist from the beginning, with the values that they would have on the parameter servers. An optimizer
    treats them as torch's own does with dense gradients: with momentum or Adam, rows that a minibatch does not touch
    change too.

    Raise InputError, which names the table, if the number of its rows is not known.
    """
    weights: dict[str, nn.Parameter] = {}
    found = layers.tables(model)
    for table in found.values():
        if table.num_ids is None:
            raise InputError(
                f"embedding table {table.name!r} has no num_ids, and {Strategy.ALLREDUCE} keeps all rows in a worker",
                f"Say how many there are, Table({table.name!r}, {table.dim}, num_ids=…), or train with "
                f"--distribution_strategy={Strategy.PARAMETER_SERVER}.",
            )
    replaced: dict[int, HeldEmbedding] = {}
    for layer in list(layers.embeddings(model)):
        table = layer.table
        if table.name not in weights:
            rows = layer.source.pull(table.name, torch.arange(_rows(table)))
            weights[table.name] = nn.Parameter(rows.to(torch.float32))
        replaced[id(layer)] = HeldEmbedding(layer, weights[table.name])
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in replaced:
                setattr(parent, name, replaced[id(child)])
    return replaced.get(id(model), model)


def whole(model: nn.Module, version: int) -> Model:
    """Return copies of the model's values on the CPU: its dense parameters and buffers by name, and its tables."""
    held = {id(layer.weight) for layer in _held(model)}
    dense = {name: value.detach().cpu().clone() for name, value in model.named_parameters() if id(value) not in held}
    kept = {name: value.clone() for name, value in buffers(model).items()}
    tables = {
        layer.table.name: TableRows(layer.table, torch.arange(_rows(layer.table)), layer.weight.detach().cpu().clone())
        for layer in _held(model)
    }
    return Model(version, {**dense, **kept}, tables)


def _held(model: nn.Module) -> Iterator[HeldEmbedding]:
    return (layer for layer in model.modules() if isinstance(layer, HeldEmbedding))


def _rows(table: Table) -> int:
    assert table.num_ids is not None
    return table.num_ids
