"""The metrics of one minibatch of the validation data, before anything is trained.

    try_metrics(job, spec)      # ZooError that names the metric

An evaluation is often due only after all training. A mistake in its functions then shows in the first seconds instead.
"""

from __future__ import annotations

import logging

import torch

from elasticdl.data.reader import Metadata, Record, Shard, exactly
from elasticdl.errors import ElasticDLError, ZooError
from elasticdl.job import JobArgs, JobMode
from elasticdl.worker import assembly
from elasticdl.worker.step import Step
from elasticdl.zoo.spec import Batch, Mode, ModelSpec

log = logging.getLogger(__name__)


def try_metrics(job: JobArgs, spec: ModelSpec) -> None:
    """Evaluate a new model on the first minibatch, if this job trains a model and evaluates it.

    Data that can't be read is no mistake of a function: it is left to the tasks, which are tried several times. Neither
    is a division by zero: a model that has learned nothing may predict no sample of some class.

    Raises:
        ZooError: a function of the model has failed; it is named.
    """
    if job.mode is not JobMode.TRAIN or not job.validation_data:
        return
    try:
        taken, metadata = _first_records(job, spec)
    except Exception as error:  # of a reader, which may be the user's
        log.warning("The metrics are not tried before the training, since no record can be read: %s", error)
        return
    try:
        _evaluate(job, spec, spec.feed(taken, Mode.EVALUATION, metadata))
        torch.cuda.empty_cache()  # the model is gone
    except Exception as error:  # whatever a user's function raises
        if isinstance(error.__cause__ or error, ArithmeticError):
            log.warning("The metrics of the model before the training: %s", error)
            return
        why = error.message if isinstance(error, ElasticDLError) else f"{type(error).__name__}: {error}"
        remedy = error.remedy if isinstance(error, ElasticDLError) else "correct the model for validation data"
        raise ZooError(f"tried on the first minibatch of {job.validation_data}: {why}", remedy) from error


def _first_records(job: JobArgs, spec: ModelSpec) -> tuple[list[Record], Metadata]:
    with assembly.reader_of(job, spec, job.validation_data) as reader:
        first = next(shard for shard in reader.shards() if shard.count)
        part = Shard(first.name, first.start, min(first.end, first.start + job.minibatch_size))
        return list(exactly(reader, part)), reader.metadata


def _evaluate(job: JobArgs, spec: ModelSpec, batch: Batch) -> None:
    metrics = spec.eval_metrics()
    metrics.update(batch.labels, Step(spec, assembly.model_of(spec, job.seed), assembly.device()).predictions(batch))
    spec.eval_metrics().merge_json(metrics.to_json()).compute()
