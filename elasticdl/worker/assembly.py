"""From the flags of a job to what its workers need: the model's functions, the module, readers, outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from elasticdl import layers
from elasticdl.data.opening import FLAG, open_reader
from elasticdl.data.params import parse_params
from elasticdl.data.reader import Reader
from elasticdl.errors import InputError
from elasticdl.job import JobArgs
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker import exported
from elasticdl.worker.exported import Exported
from elasticdl.worker.predictions import Outputs, Parts, Processed, worker_id
from elasticdl.zoo.callbacks import max_steps
from elasticdl.zoo.load import Names, load
from elasticdl.zoo.spec import ModelSpec


def spec_of(job: JobArgs) -> ModelSpec:
    """Return the functions of a job's model; raise ZooError if one is missing or wrong."""
    names = Names(
        loss=job.loss,
        optimizer=job.optimizer,
        feed=job.feed,
        eval_metrics_fn=job.eval_metrics_fn,
        callbacks=job.callbacks,
        custom_data_reader=job.custom_data_reader,
        prediction_outputs_processor=job.prediction_outputs_processor,
    )
    return load(job.model_zoo, job.model_def, job.model_params, names)


def model_of(spec: ModelSpec, seed: int) -> torch.nn.Module:
    """Return a new module: the same one in every worker of a job, whichever of them pushes it first."""
    torch.manual_seed(seed)
    return spec.model()


def readers_of(job: JobArgs, spec: ModelSpec) -> Callable[[pb.TaskType], Reader]:
    """Return a function that returns the reader for a type of task; each is opened once."""
    addresses = {
        pb.TRAINING: job.training_data,
        pb.EVALUATION: job.validation_data,
        pb.PREDICTION: job.prediction_data,
    }

    @lru_cache
    def reader(kind: pb.TaskType) -> Reader:
        return reader_of(job, spec, addresses[kind])

    return reader


def reader_of(job: JobArgs, spec: ModelSpec, address: str) -> Reader:
    """Return the reader of an address: the model's own, or that of the address."""
    if spec.custom_data_reader is not None:
        return spec.custom_data_reader(address, parse_params(FLAG, job.data_reader_params))
    return open_reader(address, job.data_reader_params)


def outputs_of(job: JobArgs, spec: ModelSpec, worker: str) -> Outputs:
    """Return where predictions go; raise InputError if nothing says so."""
    if spec.prediction_outputs_processor is not None:
        return Processed(spec.prediction_outputs_processor, worker_id(worker))
    if not job.output and job.prediction_data:
        raise InputError(
            "--output is missing, and the model has no PredictionOutputsProcessor",
            "Give --output, the folder for the predictions.",
        )
    return Parts(job.output)


def last_step(job: JobArgs, spec: ModelSpec) -> int | None:
    """Return the number of updates after which training ends; None if nothing limits it."""
    limits = [limit for limit in (job.max_step, max_steps(spec.callbacks)) if limit is not None]
    return min(limits, default=None)


def load_exported(model: torch.nn.Module, address: str) -> Exported:
    """Put an exported model's values into a module, with its embedding rows in the layers; return what was read.

    Raise InputError, with the names of the parameters, if it is the model of another function.
    """
    found = exported.read(address)
    try:
        model.load_state_dict(dict(found.state))
    except RuntimeError as error:
        raise InputError(
            f"{address}: this model does not fit --model_def: {error}", f"it was made by {found.model_def}"
        ) from error
    for layer in layers.embeddings(model):
        rows = found.tables.get(layer.table.name)
        if rows is None or rows.table.dim != layer.table.dim:
            raise InputError(
                f"{address}: the embedding table {layer.table.name!r} is missing or has another dim",
                f"the model was made by {found.model_def}",
            )
        layer.load(rows.ids, rows.rows)
    return found


def load_model(address: str, model_zoo: str) -> torch.nn.Module:
    """Return the model of a job's --output, ready to predict.

    Args:
        address: the folder, on a volume or in S3.
        model_zoo: the folder of the functions by which it was made.
    """
    found = exported.read(address)
    model = load(model_zoo, found.model_def, found.model_params).model()
    load_exported(model, address)
    return model.eval()
