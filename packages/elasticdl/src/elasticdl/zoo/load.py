"""Loads a model of the zoo, and checks every function before anything is started.

    spec = load("model_zoo", "mnist.mnist_functional_api.custom_model", "channels=16")

The functions are those of ElasticDL's functional API, in the module of `custom_model`:

    custom_model(**model_params)             the model, a torch.nn.Module; may be the class itself
    loss(labels, predictions)                a tensor of one number
    optimizer()                              a description: see `optimizers`
    feed(records, mode, metadata)            features, labels: of the records of one minibatch, as tensors. For
                                             prediction: the features alone. `metadata` may be left out.
    eval_metrics_fn()                        metrics by name: see `metrics`
    callbacks()                              optional: see `callbacks`
    custom_data_reader(address, **params)    optional: a reader of one's own
    PredictionOutputsProcessor               optional: a class, or an object, that takes the predictions

Each name but the first may be another one, also in another module of the zoo: `{"loss": "common.losses.focal"}`.
`uses` says which of them a job uses; the others need not be there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elasticdl.data.params import parse_params
from elasticdl.data.reader import Metadata, Reader, Record
from elasticdl.errors import ElasticDLError, ZooError
from elasticdl.job import JobArgs
from elasticdl.zoo.callbacks import Callback
from elasticdl.zoo.metrics import Metrics
from elasticdl.zoo.module import Found, find, has, place
from elasticdl.zoo.optimizers import KINDS, SGD, Optimizer
from elasticdl.zoo.spec import Batch, Mode, ModelSpec, PredictionOutputsProcessor, Predictions

MODEL_DEF = "--model_def"
PARAMS = "--model_params"

_EXPECTED = {
    "loss": "def loss(labels, predictions): ...",
    "optimizer": "def optimizer(lr=0.1): ...",
    "feed": "def feed(records, mode, metadata): ... or def feed(records, mode): ...",
    "eval_metrics_fn": "def eval_metrics_fn(): ...",
    "callbacks": "def callbacks(): ...",
    "custom_data_reader": "def custom_data_reader(address, **params): ...",
    "prediction_outputs_processor": "class PredictionOutputsProcessor with process(predictions, worker_id)",
}

NAMES: Mapping[str, str] = {flag: getattr(JobArgs, flag) for flag in _EXPECTED}
"""What the functions are called unless the flags name others."""

_ALL = {flag: flag in ("loss", "optimizer", "feed", "eval_metrics_fn") for flag in NAMES}


def load(
    model_zoo: str,
    model_def: str,
    model_params: str | Mapping[str, Any] = "",
    names: Mapping[str, str] | None = None,
    uses: Mapping[str, bool] = _ALL,
) -> ModelSpec:
    """Return a model of the zoo.

    Args:
        model_zoo: its folder.
        model_def: the dotted name of the model's function or class in it.
        model_params: arguments of that function, `a=1;b=2`.
        names: of those of the other functions that have another one than usual, by flag.
        uses: the functions that are looked for, and whether each must be there; see `JobArgs.functions`.

    Raises:
        ZooError: A module or function is missing, can't be imported, has a wrong signature, or returned something
            else than it should. The error names the file and what is expected. The model itself is not made, and
            neither is a processor of predictions.
    """
    zoo = Path(model_zoo).resolve()
    model = find(MODEL_DEF, model_zoo, model_def)
    look = _Look(model_zoo, model_def.rpartition(".")[0], {**NAMES, **(names or {})})
    found = {field: look.required(field) if must else look.optional(field) for field, must in uses.items()}

    def made(field: str, make: Callable[[Found, Path], Any], without: Any) -> Any:
        function = found.get(field)
        return without if function is None else make(function, zoo)

    return ModelSpec(
        model_def=model_def,
        file=model.file,
        model=_model(model, parse_params(PARAMS, model_params), zoo),
        loss=made("loss", CheckedLoss, _left_out("loss")),
        optimizer=made("optimizer", _optimizer, SGD()),
        feed=made("feed", CheckedFeed, _left_out("feed")),
        eval_metrics=made("eval_metrics_fn", _metrics, _left_out("eval_metrics_fn")),
        callbacks=made("callbacks", _callbacks, ()),
        custom_data_reader=made("custom_data_reader", _reader, None),
        prediction_outputs_processor=made("prediction_outputs_processor", _processor, None),
    )


def _left_out(field: str) -> Callable[..., Any]:
    """Return what stands for a function that isn't used, and raises ZooError if it is."""

    def refuse(*_arguments: Any, **_named: Any) -> Any:
        raise ZooError(f"--{field}: the model was loaded without this function", "load the model with it")

    return refuse


@dataclass(frozen=True)
class _Look:
    """Where the functions are looked for."""

    zoo: str
    module: str
    names: Mapping[str, str]

    def required(self, field: str) -> Found:
        """Return a function; raise ZooError that says what is expected if it isn't there or takes other arguments."""
        name = self.names[field]
        dotted = name if "." in name else f"{self.module}.{name}"
        try:
            found = find(f"--{field}", self.zoo, dotted)
        except ZooError as error:
            raise ZooError(error.message, f"{error.remedy}; expected: {_EXPECTED[field]}") from error
        if not callable(found.value) and field != "prediction_outputs_processor":
            raise ZooError(
                f"--{field}: {found.name} in {found.file} is {found.value!r}, no function", f"write {_EXPECTED[field]}"
            )
        given = {"custom_data_reader": ("address",)}.get(field, ())
        if field not in ("loss", "feed", "prediction_outputs_processor") and not fits(found.value, *given):
            raise ZooError(
                f"--{field}: {found.name}{inspect.signature(found.value)} in {found.file} can't be called "
                f"with {', '.join(given) or 'no arguments'}",
                f"write {_EXPECTED[field]}",
            )
        return found

    def optional(self, field: str) -> Found | None:
        """Return a function; None if it isn't there, unless its name was given."""
        name = self.names[field]
        if name == NAMES[field] and not has(self.zoo, self.module, name):
            return None
        found = self.required(field)
        # A module that imports the base class, to derive another name from it, has no processor of this name.
        return None if found.value is PredictionOutputsProcessor else found


def call(found: Found, zoo: Path, *arguments: Any, **named: Any) -> Any:
    """Return what a function of the zoo returns; raise ZooError if it fails."""
    try:
        return found.value(*arguments, **named)
    except ElasticDLError:
        raise
    except Exception as error:
        raise ZooError(
            f"{found.name}() in {found.file} failed: {type(error).__name__}: {error}{place(error, zoo)}",
            "correct the function",
        ) from error


def fits(function: Callable[..., Any], *arguments: Any, **named: Any) -> bool:
    """Return whether a function can be called with arguments."""
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return False
    except ValueError:  # a function of C that does not tell its arguments
        return True
    return True


class CheckedLoss:
    """The user's loss."""

    def __init__(self, found: Found, zoo: Path) -> None:
        self._found = found
        self._zoo = zoo
        if not fits(found.value, None, None):
            raise ZooError(
                f"--loss: {found.name}{inspect.signature(found.value)} in {found.file} can't be called with "
                "(labels, predictions)",
                "write def loss(labels, predictions): ...",
            )

    def __call__(self, labels: Any, predictions: Predictions) -> torch.Tensor:
        """Return the loss; raise ZooError if it is no tensor of one number."""
        value = call(self._found, self._zoo, labels, predictions)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            shape = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ZooError(
                f"--loss: {self._found.name} in {self._found.file} returned {shape}",
                "return a tensor of one number, such as the mean over the minibatch",
            )
        return value.reshape(())


class CheckedFeed:
    """The user's feed."""

    def __init__(self, found: Found, zoo: Path) -> None:
        self._found = found
        self._zoo = zoo
        self._with_metadata = fits(found.value, None, None, None)
        if not self._with_metadata and not fits(found.value, None, None):
            raise ZooError(
                f"--feed: {found.name}{inspect.signature(found.value)} in {found.file} can't be called with "
                "(records, mode, metadata)",
                "write def feed(records, mode, metadata): ... or def feed(records, mode): ...",
            )

    def __call__(self, records: Sequence[Record], mode: Mode, metadata: Metadata) -> Batch:
        """Return the records of a minibatch as tensors; raise ZooError if feed does not return features and labels."""
        given = (list(records), mode, metadata) if self._with_metadata else (list(records), mode)
        value = call(self._found, self._zoo, *given)
        if isinstance(value, tuple) and len(value) == 2:
            return Batch(value[0], None if mode is Mode.PREDICTION else value[1])
        if mode is Mode.PREDICTION:
            return Batch(value, None)
        raise ZooError(
            f"--feed: {self._found.name} in {self._found.file} returned {type(value).__name__} for mode {mode.value}",
            "return a pair: features, labels",
        )


def _model(found: Found, params: Mapping[str, Any], zoo: Path) -> Callable[[], torch.nn.Module]:
    """Return what makes a new model."""
    what = f"{MODEL_DEF}: {found.name} in {found.file}"
    if not callable(found.value):
        raise ZooError(
            f"{what} is {found.value!r}", "write def custom_model(**params): ..., or a subclass of nn.Module"
        )
    if not fits(found.value, **params):
        raise ZooError(
            f"{what} takes {inspect.signature(found.value)}, and {PARAMS} gives {', '.join(params) or 'nothing'}",
            f"correct {PARAMS}, or give the function's arguments defaults",
        )

    def make() -> torch.nn.Module:
        model = call(found, zoo, **params)
        if not isinstance(model, torch.nn.Module):
            raise ZooError(f"{what} returned {type(model).__name__}", "return a torch.nn.Module")
        return model

    return make


def _optimizer(found: Found, zoo: Path) -> Optimizer:
    value = call(found, zoo)
    if not isinstance(value, Optimizer):
        raise ZooError(
            f"--optimizer: {found.name} in {found.file}: {found.name}() returned {value!r}",
            f"return {', '.join(KINDS)} of elasticdl.zoo.optimizers: torch's own holds the parameters of one process",
        )
    return value


def _metrics(found: Found, zoo: Path) -> Callable[[], Metrics]:
    """Return what makes new metrics, which has been tried."""
    _new_metrics(found, zoo)
    return lambda: _new_metrics(found, zoo)


def _new_metrics(found: Found, zoo: Path) -> Metrics:
    metrics = call(found, zoo)
    what = f"--eval_metrics_fn: {found.name} in {found.file}"
    if not isinstance(metrics, Mapping) or not metrics:
        raise ZooError(f"{what} returned {metrics!r}", 'return metrics by name, such as {"accuracy": Accuracy()}')
    try:
        return Metrics(metrics)
    except ZooError as error:
        raise ZooError(f"{what}: {error.message}", error.remedy) from error


def _callbacks(found: Found, zoo: Path) -> tuple[Callback, ...]:
    callbacks = call(found, zoo)
    wrong = [each for each in callbacks if not isinstance(each, Callback)] if _is_list(callbacks) else [callbacks]
    if wrong:
        raise ZooError(
            f"--callbacks: {found.name} in {found.file} returned {wrong[0]!r}",
            "return a list of elasticdl.zoo.callbacks: LearningRateScheduler, MaxSteps",
        )
    return tuple(callbacks)


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _reader(found: Found, zoo: Path) -> Callable[[str, Mapping[str, Any]], Reader]:
    def make(address: str, params: Mapping[str, Any]) -> Reader:
        reader = call(found, zoo, address, **params)
        if not isinstance(reader, Reader):
            raise ZooError(
                f"--custom_data_reader: {found.name} in {found.file} returned {type(reader).__name__}",
                "return a subclass of elasticdl.data.reader.Reader",
            )
        return reader

    return make


def _processor(found: Found, zoo: Path) -> Callable[[], PredictionOutputsProcessor]:
    """Return what makes the processor: its constructor may open a database, so only who predicts calls it."""
    value = found.value
    kind = value if isinstance(value, type) else type(value)
    if not issubclass(kind, PredictionOutputsProcessor):
        raise ZooError(
            f"--prediction_outputs_processor: {found.name} in {found.file} is {value!r}",
            "derive it from elasticdl.zoo.spec.PredictionOutputsProcessor",
        )
    return lambda: call(found, zoo) if kind is value else value
