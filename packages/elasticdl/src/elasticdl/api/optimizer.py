"""An optimizer that collects gradients until the global batch is whole.

    optimizer = FixedBatchOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.zero_grad(); loss.backward(); optimizer.step()       # in a function that `elastic_run` wraps

`step` only notes that the gradients of a minibatch are there; the controller collects them, and updates the model when
all workers together have those of the global batch. Schedulers of torch take it for an optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class FixedBatchOptimizer(torch.optim.Optimizer):
    """See the module. `inner` is the optimizer that updates the model."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        # Not the constructor of torch's class: groups and moments are those of the inner one.
        self.inner = inner
        self.on_step: Callable[[], None] | None = None
        """Called by `step`; set by a controller."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the inner optimizer's."""
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Return the inner optimizer's."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the inner optimizer's."""
        return self.inner.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the last minibatch. Those that were collected stay."""
        self.inner.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Note that the gradients of a minibatch are in the parameters. Without a controller: update the model."""
        if self.on_step is None:
            self.inner.step(closure)
        else:
            self.on_step()

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's."""
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Load the inner optimizer's."""
        self.inner.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"FixedBatchOptimizer({self.inner!r})"
