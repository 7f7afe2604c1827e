"""What a model of the zoo consists of, once its module is loaded and every function is known to fit.

spec = load("model_zoo", "mnist.mnist_functional_api.custom_model")
model = spec.model()
batch = spec.feed(records, Mode.TRAINING, reader.metadata)
loss = spec.loss(batch.labels, model(batch.features))
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from elasticdl.data.reader import Metadata, Reader, Record
from elasticdl.zoo.callbacks import Callback
from elasticdl.zoo.metrics import Metrics
from elasticdl.zoo.optimizers import Optimizer

Features = Any
"""What the model takes: a tensor, or a mapping of tensors."""
Predictions = Any
"""What the model returns: a tensor, or a mapping of tensors."""


class Mode(StrEnum):
    """What the records are for. A mode equals its text, so a model may also compare with "training"."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


@dataclass(frozen=True)
class Batch:
    """One minibatch, as tensors."""

    features: Features
    labels: Any
    """None for prediction."""


Loss = Callable[[Any, Predictions], torch.Tensor]
"""From labels and predictions of a minibatch to a tensor of one number."""
Feed = Callable[[Sequence[Record], Mode, Metadata], Batch]
"""From the records of a minibatch to tensors."""


class PredictionOutputsProcessor(abc.ABC):
    """Takes predictions out of the workers; a model names its own as `prediction_outputs_processor`."""

    @abc.abstractmethod
    def process(self, predictions: Predictions, worker_id: int) -> None:
        """Store the predictions of one minibatch. A task that is repeated gives them again."""


@dataclass(frozen=True)
class ModelSpec:
    """A model of the zoo. Every call raises ZooError with the function's name if the user's function misbehaves.

    A function that the model was loaded without raises ZooError too, and the optimizer is then SGD.
    """

    model_def: str
    file: Path
    """The module that defines the model."""
    model: Callable[[], torch.nn.Module]
    """Returns a new model each time."""
    loss: Loss
    optimizer: Optimizer
    feed: Feed
    eval_metrics: Callable[[], Metrics]
    """Returns metrics that have seen nothing."""
    callbacks: tuple[Callback, ...] = ()
    custom_data_reader: Callable[[str, Mapping[str, Any]], Reader] | None = None
    """From the data's address and the parameters of --data_reader_params to a reader."""
    prediction_outputs_processor: Callable[[], PredictionOutputsProcessor] | None = None
    """Returns the processor, which is made here and not before."""
