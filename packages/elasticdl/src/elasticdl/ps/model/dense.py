"""The dense parameters of one server, changed by torch's own optimizer.

    dense = Dense({"weight": tensor}, buffers={}, optimizer=Adam())
    dense.step({"weight": gradient}, lr=0.1)
    dense.published                            # values as messages, of the last finished step

One optimizer of torch.optim holds all parameters of the server; those without a gradient are left out of a step, as
torch does. The values that are pulled are encoded once for each step, however many workers pull them, and they are
never changed: a snapshot is a reference.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from elasticdl.ps.errors import PushRefused
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.tensors import encode
from elasticdl.zoo.optimizers import Optimizer

Encoded = Mapping[str, pb.Tensor]


class Dense:
    """Dense parameters, buffers, and the optimizer's state. One thread at a time may change them."""

    def __init__(
        self, values: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor], optimizer: Optimizer
    ) -> None:
        self._parameters = {name: torch.nn.Parameter(value) for name, value in values.items()}
        self._buffers = dict(buffers)
        self._optimizer = optimizer.torch(self._parameters.values()) if values else None
        self.published: Encoded = {name: encode(value) for name, value in [*values.items(), *buffers.items()]}
        """Replaced as a whole with each step."""

    @property
    def parameters(self) -> Mapping[str, torch.Tensor]:
        """What the optimizer changes."""
        return self._parameters

    @property
    def buffers(self) -> Mapping[str, torch.Tensor]:
        """What workers set, such as running means."""
        return self._buffers

    def step(self, gradients: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor], lr: float) -> None:
        """Do one step with the gradients that there are, and set buffers."""
        for name, gradient in gradients.items():
            self._parameters[name].grad = gradient
        if gradients and self._optimizer:
            self._optimizer.param_groups[0]["lr"] = lr
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        self._buffers.update(buffers)
        changed = {name: encode(self._parameters[name]) for name in gradients}
        self.published = {**self.published, **changed, **{name: encode(value) for name, value in buffers.items()}}

    def state(self) -> dict[tuple[str, str], torch.Tensor]:
        """Return copies of the optimizer's state, by parameter and by torch's name of it."""
        if not self._optimizer:
            return {}
        return {
            (name, key): value.detach().clone()
            for name, parameter in self._parameters.items()
            for key, value in self._optimizer.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor)
        }

    def load_state(self, state: Mapping[tuple[str, str], torch.Tensor]) -> None:
        """Take the state that `state` returned."""
        if self._optimizer:
            for (name, key), value in state.items():
                self._optimizer.state[self._parameters[name]][key] = value

    def check(self, gradients: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor]) -> None:
        """Raise PushRefused, with the name of the parameter, if something doesn't fit."""
        for name, gradient in gradients.items():
            if name in self._buffers:
                raise PushRefused(f"{name} is a buffer, and a gradient was pushed for it", "push it among the buffers")
            fits(name, gradient, self._parameters.get(name))
            finite(name, gradient)
        for name, value in buffers.items():
            fits(name, value, self._buffers.get(name))


def fits(name: str, value: torch.Tensor, held: torch.Tensor | None) -> None:
    """Raise PushRefused if a tensor doesn't have shape and type of the one that the server holds."""
    if held is None:
        raise PushRefused(
            f"the parameter server doesn't know {name}, which was pushed with shape {list(value.shape)}",
            "All workers of a job must run the same model.",
        )
    if (value.shape, value.dtype) != (held.shape, held.dtype):
        raise PushRefused(
            f"{name} has shape {list(held.shape)} ({held.dtype}) on the parameter server, and {list(value.shape)} "
            f"({value.dtype}) in what was pushed",
            "All workers of a job must run the same model; a checkpoint must be of this model, too.",
        )


def finite(name: str, gradient: torch.Tensor) -> None:
    """Raise PushRefused if a gradient has a number that is NaN or infinite."""
    if not torch.isfinite(gradient).all():
        raise PushRefused(
            f"the gradient of {name}, shape {list(gradient.shape)}, has NaN or infinite numbers",
            "Use a lower learning rate, clip gradients, or check loss and data.",
        )
