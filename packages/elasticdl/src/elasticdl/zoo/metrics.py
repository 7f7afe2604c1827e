"""Metrics with parts from any number of tasks.

    def eval_metrics_fn() -> dict[str, MetricLike]:
        return {"accuracy": Accuracy(), "auc": AUC(), "mse": lambda labels, predictions: (predictions - labels) ** 2}

    part = Metrics(eval_metrics_fn())      # in a worker, for one task
    part.update(labels, predictions)
    text = part.to_json()
    whole = Metrics(eval_metrics_fn())     # in the master
    whole.merge_json(text)
    whole.compute()                        # {"accuracy": 0.97, …}

The master combines parts in the order of their tasks, so that the same tasks give the same number. A function counts as
a mean over its values: a tensor with one value for each sample, or one number for the minibatch, which then weighs as
much as the minibatch has samples.
"""

from __future__ import annotations

import abc
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import torch

from elasticdl.errors import ZooError

State = dict[str, Any]
"""What JSON can hold, to the bit."""
MetricFunction = Callable[[Any, Any], Any]


class Metric(abc.ABC):
    """A metric; a subclass of one's own defines these four methods. Its constructor gives one that has seen nothing."""

    @abc.abstractmethod
    def update(self, labels: Any, predictions: Any) -> None:
        """Take in one minibatch."""

    @abc.abstractmethod
    def state(self) -> State:
        """Return what was taken in, as JSON can hold it."""

    @abc.abstractmethod
    def merge(self, state: State) -> None:
        """Take in what another metric of the same kind has taken in. The order of calls must not matter."""

    @abc.abstractmethod
    def compute(self) -> float:
        """Return the metric of everything taken in; NaN of nothing."""


class Mean(Metric):
    """The mean of a function's values over all samples."""

    def __init__(self, function: MetricFunction) -> None:
        self._function = function
        self._sum = 0.0
        self._count = 0

    def update(self, labels: Any, predictions: Any) -> None:
        """Take in the function's values of one minibatch."""
        value = torch.as_tensor(self._function(labels, predictions)).detach()
        samples = _samples(labels)
        if value.ndim == 0:
            self._sum += float(value) * samples
            self._count += samples
        elif value.shape[0] == samples:
            self._sum += float(value.to(torch.float64).sum())
            self._count += value.numel()
        else:
            raise ZooError(
                f"a metric's function returned shape {tuple(value.shape)} for {samples} samples",
                "return one value for each sample, or one number",
            )

    def state(self) -> State:
        """Return sum and count."""
        return {"sum": self._sum, "count": self._count}

    def merge(self, state: State) -> None:
        """Add sum and count."""
        self._sum += float(state["sum"])
        self._count += int(state["count"])

    def compute(self) -> float:
        """Return the mean."""
        return self._sum / self._count if self._count else float("nan")


class Accuracy(Metric):
    """The share of samples with the right class predicted.

    Predictions are scores, (samples, classes), and the class with the highest score counts; or one score for each
    sample, which is compared with `threshold`. Labels are class numbers.
    """

    def __init__(self, threshold: float = 0.5) -> None:
        self._threshold = threshold
        self._right = 0
        self._count = 0

    def update(self, labels: Any, predictions: Any) -> None:
        """Count the samples that are predicted right."""
        truth = torch.as_tensor(labels).reshape(-1)
        scores = torch.as_tensor(predictions).detach()
        if scores.ndim > 1 and scores.shape[-1] > 1:
            guess = scores.argmax(-1).reshape(-1)
        else:
            guess = (scores.reshape(-1) > self._threshold).to(torch.int64)
        _same_count("accuracy", truth, guess)
        self._right += int((guess.to(truth.device) == truth.to(torch.int64)).sum())
        self._count += truth.numel()

    def state(self) -> State:
        """Return both counts."""
        return {"right": self._right, "count": self._count}

    def merge(self, state: State) -> None:
        """Add both counts."""
        self._right += int(state["right"])
        self._count += int(state["count"])

    def compute(self) -> float:
        """Return the share."""
        return self._right / self._count if self._count else float("nan")


class AUC(Metric):
    """The area under the ROC curve, by thresholds as Keras' AUC has it: its size doesn't grow with the data.

    Labels are 0 or 1. Predictions are one probability for each sample, or with `from_logits` one number of any size, as
    a model has it before the sigmoid. Between two thresholds, which are 1 / (num_thresholds - 1) apart, the curve is a
    straight line. https://www.tensorflow.org/api_docs/python/tf/keras/metrics/AUC
    """

    def __init__(self, num_thresholds: int = 200, *, from_logits: bool = False) -> None:
        if num_thresholds < 2:
            raise ZooError(f"AUC: num_thresholds is {num_thresholds}", "give 2 or more")
        self._from_logits = from_logits
        self._counts = torch.zeros(2, num_thresholds - 1, dtype=torch.int64)
        """Negative and positive samples between each threshold and the next one."""

    def update(self, labels: Any, predictions: Any) -> None:
        """Count the samples of one minibatch between the thresholds."""
        truth = torch.as_tensor(labels).reshape(-1).cpu()
        scores = torch.as_tensor(predictions).detach().to("cpu", torch.float64).reshape(-1)
        _same_count("AUC", truth, scores)
        if bool(((truth != 0) & (truth != 1)).any()):
            raise ZooError("AUC: a label is neither 0 nor 1", "AUC is of two classes; use Accuracy for more")
        if bool(scores.isnan().any()):
            raise ZooError("AUC: a score is NaN", "the training has diverged: lower the learning rate")
        if self._from_logits:
            scores = scores.sigmoid()
        if bool(((scores < 0) | (scores > 1)).any()):
            raise ZooError("AUC: a score is not between 0 and 1", "use AUC(from_logits=True), or return probabilities")
        between = self._counts.shape[1]
        # A score on a threshold is not above it.
        places = ((scores * between).ceil().to(torch.int64) - 1).clamp(0, between - 1)
        for label in (0, 1):
            self._counts[label] += torch.bincount(places[truth == label], minlength=between)

    def state(self) -> State:
        """Return the counts."""
        return {"counts": self._counts.tolist()}

    def merge(self, state: State) -> None:
        """Add the counts."""
        self._counts += torch.tensor(state["counts"])

    def compute(self) -> float:
        """Return the area; NaN unless both classes occurred."""
        negative, positive = self._counts.to(torch.float64)
        pairs = negative.sum() * positive.sum()
        below = negative.cumsum(0) - negative / 2
        return float((positive * below).sum() / pairs) if pairs else float("nan")


MetricLike = Metric | MetricFunction | Mapping[str, "Metric | MetricFunction"]


class Metrics:
    """All metrics of a model, by name.

    A model with several outputs returns a mapping of tensors, and its `eval_metrics_fn()` a mapping from each output's
    name to metrics; such a metric is called `output.metric`.
    """

    def __init__(self, metrics: Mapping[str, MetricLike]) -> None:
        self._metrics: dict[tuple[str | None, str], Metric] = {}
        for name, given in metrics.items():
            if isinstance(given, Mapping):
                for inner, metric in given.items():
                    self._metrics[name, inner] = _metric(f"{name}.{inner}", metric)
            else:
                self._metrics[None, name] = _metric(name, given)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the metrics' names."""
        return tuple(_joined(key) for key in self._metrics)

    def update(self, labels: Any, predictions: Any) -> None:
        """Take in one minibatch. Raise ZooError, with the metric's name, if a metric fails."""
        for key, metric in self._metrics.items():
            with _named(key, lambda: f"it got labels {_shape(labels)} and predictions {_shape(predictions)}; "):
                metric.update(labels, predictions if key[0] is None else predictions[key[0]])

    def to_json(self) -> str:
        """Return what was taken in; `merge_json` takes it in elsewhere."""
        return json.dumps({_joined(key): metric.state() for key, metric in self._metrics.items()}, sort_keys=True)

    def merge_json(self, text: str) -> Self:
        """Take in what other metrics of the same model have taken in; return self."""
        states: dict[str, State] = json.loads(text)
        if set(states) != set(self.names):
            raise ZooError(
                f"metrics {sorted(states)} do not combine with {sorted(self.names)}",
                "all workers of a job must have the same model zoo",
            )
        for key, metric in self._metrics.items():
            with _named(key):
                metric.merge(states[_joined(key)])
        return self

    def compute(self) -> dict[str, float]:
        """Return each metric's value by its name. Raise ZooError, with the metric's name, if a metric fails."""
        values = {}
        for key, metric in self._metrics.items():
            with _named(key):
                values[_joined(key)] = float(metric.compute())
        return values


@contextlib.contextmanager
def _named(key: tuple[str | None, str], got: Callable[[], str] = str) -> Iterator[None]:
    """Raise ZooError with the metric's name for an error within, which is mostly of a function of the user's."""
    try:
        yield
    except ZooError as error:
        raise ZooError(f"metric {_joined(key)}: {error.message}", error.remedy) from error
    except Exception as error:
        what = f"metric {_joined(key)} failed: {type(error).__name__}: {error}"
        raise ZooError(what, f"{got()}correct eval_metrics_fn()") from error


def _metric(name: str, given: object) -> Metric:
    if isinstance(given, Metric):
        return given
    if isinstance(given, type) and issubclass(given, Metric):
        raise ZooError(f"metric {name} is the class {given.__name__}", f"return an object: {given.__name__}()")
    if callable(given):
        return Mean(given)
    raise ZooError(
        f"metric {name} is {given!r}",
        "return a function of (labels, predictions), or a metric of elasticdl.zoo.metrics",
    )


def _joined(key: tuple[str | None, str]) -> str:
    return key[1] if key[0] is None else f"{key[0]}.{key[1]}"


def _samples(labels: Any) -> int:
    """Return the number of samples in a minibatch."""
    first = next(iter(labels.values())) if isinstance(labels, Mapping) else labels
    return len(first)


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_shape(each)}" for name, each in value.items()) + "}"
    return str(tuple(value.shape)) if hasattr(value, "shape") else type(value).__name__


def _same_count(metric: str, labels: torch.Tensor, predictions: torch.Tensor) -> None:
    if labels.numel() != predictions.numel():
        raise ZooError(
            f"{metric}: {labels.numel()} labels for {predictions.numel()} predictions",
            "the model must return one prediction for each label",
        )
