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
from elasticdl.job import JobArgs, problems_of_outputs
from elasticdl.ps.checkpoint import Model
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker import exported
from elasticdl.worker.predictions import Outputs, Parts, Processed, worker_id
from elasticdl.worker.step import buffers
from elasticdl.zoo.callbacks import max_steps
from elasticdl.zoo.load import NAMES, load
from elasticdl.zoo.spec import ModelSpec
from tidewater.elastic.data.seeds import seed_script


def spec_of(job: JobArgs) -> ModelSpec:
    """Return the functions of a job's model.

    Raises:
        ZooError: one that the job uses is missing or wrong.
        InputError: of --output and the model's own processor of predictions there are both, or neither.
    """
    names = {flag: getattr(job, flag) for flag in NAMES}
    spec = load(job.model_zoo, job.model_def, job.model_params, names, job.functions())
    for message, remedy in problems_of_outputs(job, processor=spec.prediction_outputs_processor is not None):
        raise InputError(message, remedy)
    return spec


def model_of(spec: ModelSpec, seed: int) -> torch.nn.Module:
    """Return a new module: the same one in every worker of a job, whichever of them pushes it first."""
    seed_script(seed)
    return spec.model()


def device() -> torch.device:
    """Return what this process computes on: its GPU, or the CPU if it has none."""
    return torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


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
    """Return where predictions go."""
    made = spec.prediction_outputs_processor
    return Parts(job.output) if made is None else Processed(made(), worker_id(worker))


def last_step(job: JobArgs, spec: ModelSpec) -> int | None:
    """Return the number of updates after which training ends; None if nothing limits it."""
    limits = [limit for limit in (job.max_step, max_steps(spec.callbacks)) if limit is not None]
    return min(limits, default=None)


def put_values(module: torch.nn.Module, model: Model, address: str) -> None:
    """Put the values of a checkpoint or an exported model into a module, with embedding rows in its layers.

    Raise InputError, with the name of what differs, if it is of another model. `address` is for the message.
    """
    targets = {**dict(module.named_parameters()), **buffers(module)}
    remedy = "Give --model_def and --model_params of the job that has written it."
    for name in sorted({*targets, *model.dense}):
        ours, theirs = targets.get(name), model.dense.get(name)
        if ours is None or theirs is None or ours.shape != theirs.shape:
            told = [None if each is None else list(each.shape) for each in (ours, theirs)]
            raise InputError(f"{address} is of another model: {name} has shape {told[1]}, and here {told[0]}", remedy)
    state = module.state_dict()
    module.load_state_dict({**state, **model.dense})
    for layer in layers.embeddings(module):
        rows = model.tables.get(layer.table.name)
        if rows is None or rows.table.dim != layer.table.dim:
            what = "is missing" if rows is None else f"has dim {rows.table.dim}, and here {layer.table.dim}"
            raise InputError(f"{address} is of another model: embedding table {layer.table.name!r} {what}", remedy)
        layer.load(rows.ids, rows.rows)


def load_model(address: str, model_zoo: str) -> torch.nn.Module:
    """Return the model of a job's --output, ready to predict.

    Args:
        address: the folder, on a volume or in S3.
        model_zoo: the folder with the functions that made it.
    """
    found = exported.read(address)
    module = load(model_zoo, found.origin.model_def, found.origin.model_params, uses={}).model()
    put_values(module, found.model, address)
    return module.eval()
