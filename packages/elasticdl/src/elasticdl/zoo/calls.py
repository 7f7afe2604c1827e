"""Calls of the user's functions, with what they return checked.

A function that fails gives a ZooError that names the function, its file and the line. Errors of this package, such as
that of a damaged record, pass as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from elasticdl.data.reader import Metadata, Record
from elasticdl.errors import ElasticDLError, ZooError
from elasticdl.zoo.module import Found, place
from elasticdl.zoo.spec import Batch, Mode, Predictions


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
