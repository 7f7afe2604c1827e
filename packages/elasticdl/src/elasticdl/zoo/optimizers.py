"""Optimizers as descriptions: what a model's `optimizer()` returns.

    def optimizer(lr: float = 0.1) -> Optimizer:
        return SGD(lr=lr, momentum=0.9)

A description is used in two places. In one process `description.torch(model.parameters())` is torch's own optimizer.
With parameter servers it travels to them as JSON, and they do what torch's optimizer does, row by row for embeddings.
The names, defaults and meanings of the fields are those of torch.optim.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from elasticdl.errors import ZooError

_VERSION = 1


@dataclass(frozen=True)
class Optimizer:
    """A description of an optimizer; use one of the subclasses."""

    lr: float
    """Learning rate: one for the whole model; callbacks may change it from version to version."""

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, bool) and not (isinstance(value, int | float) and math.isfinite(value)):
                raise ZooError(f"{self.kind}: {field.name} is {value!r}", "give a finite number")
            if not isinstance(value, bool) and value < 0:
                raise ZooError(f"{self.kind}: {field.name} is {value}", "give a number that is not negative")

    def torch(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return torch's optimizer of this description over a model's parameters."""
        raise NotImplementedError

    def with_lr(self, lr: float) -> Optimizer:
        """Return the same optimizer with another learning rate."""
        return dataclasses.replace(self, lr=lr)

    def to_json(self) -> str:
        """Return the description as JSON."""
        return json.dumps({"version": _VERSION, "kind": self.kind, **dataclasses.asdict(self)}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Optimizer:
        """Return the description that `to_json` wrote; raise ZooError for anything else."""
        try:
            fields: dict[str, Any] = json.loads(text)
            version, kind = fields.pop("version"), fields.pop("kind")
            if version != _VERSION:
                raise ZooError(f"this optimizer has version {version}, and this program knows {_VERSION}", "upgrade it")
            return KINDS[kind](**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            known = f"known kinds: {', '.join(KINDS)}"
            raise ZooError(f"this is no optimizer: {text[:200]!r} ({error!r})", known) from None


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with or without momentum."""

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    kind: ClassVar[str] = "SGD"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and (not self.momentum or self.dampening):
            raise ZooError(
                f"SGD: nesterov with momentum {self.momentum} and dampening {self.dampening}",
                "Nesterov's method needs a momentum, and no dampening",
            )

    def torch(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return torch.optim.SGD."""
        return torch.optim.SGD(parameters, **dataclasses.asdict(self))


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Adagrad."""

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    kind: ClassVar[str] = "Adagrad"

    def torch(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return torch.optim.Adagrad."""
        return torch.optim.Adagrad(parameters, **dataclasses.asdict(self))


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam, or AMSGrad."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    kind: ClassVar[str] = "Adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise ZooError(f"Adam: {name} is {getattr(self, name)}", "give a number in [0, 1)")

    def torch(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return torch.optim.Adam."""
        fields = dataclasses.asdict(self)
        betas = (fields.pop("beta1"), fields.pop("beta2"))
        return torch.optim.Adam(parameters, betas=betas, **fields)


KINDS: dict[str, type[Optimizer]] = {each.kind: each for each in (SGD, Adagrad, Adam)}
