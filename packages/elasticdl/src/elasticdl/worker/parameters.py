"""Where the model of a job is, as the loop sees it: on the parameter servers, or in the same process.

version = parameters.pull()                # dense parameters are in the module; embedding rows come when asked for
accepted = parameters.push(gradients, learning_rate=0.1)
with parameters.snapshot(200): ...         # the module has the model's values of version 200
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch

from elasticdl.layers import RowGradient
from elasticdl.ps.checkpoint import Model


@dataclass(frozen=True)
class Gradients:
    """What one minibatch gives."""

    dense: Mapping[str, torch.Tensor]
    """By the parameter's name; parameters that the loss does not depend on are left out."""
    rows: Sequence[RowGradient] = ()
    """One entry for each embedding table that was used."""
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """New values of what the model itself changes, such as running means."""


class Parameters(Protocol):
    """The model of a job."""

    def pull(self) -> int:
        """Put the newest values into the module; return their version."""
        ...

    def push(self, minibatch: int, gradients: Gradients, learning_rate: float) -> bool:
        """Give the gradients of a minibatch; return False if they are too old, and must be computed anew.

        Args:
            minibatch: number of the worker's minibatch. The same number again is the same minibatch, and counts once.
            gradients: by the values that the last `pull` has put into the module.
            learning_rate: of the update; 0 for the optimizer's own.
        """
        ...

    def snapshot(self, version: int) -> AbstractContextManager[None]:
        """Have the values of a version in the module; 0: the newest. The next `pull` brings the newest back."""
        ...

    def idle(self) -> None:
        """Do what is to be done while there is no task: a server that came back without its model gets one."""
        ...

    def whole(self) -> Model:
        """Return the newest model with all embedding tables, for the export."""
        ...
