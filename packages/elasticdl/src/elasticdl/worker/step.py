"""The gradients, or the predictions, of one minibatch.

step = Step(spec, model, torch.device("cpu"))
loss, gradients = step.gradients(batch)
predictions = step.predictions(batch)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from elasticdl import layers
from elasticdl.errors import ZooError
from elasticdl.worker.parameters import Gradients
from elasticdl.zoo.spec import Batch, ModelSpec


class Step:
    """A model that computes. Its parameters are set from outside, before each call."""

    def __init__(self, spec: ModelSpec, model: torch.nn.Module, device: torch.device) -> None:
        self.model = model.to(device)
        self._spec, self._device = spec, device

    def gradients(self, batch: Batch) -> tuple[float, Gradients]:
        """Return the loss of a minibatch and its gradients, on the CPU.

        Raise ZooError if the loss is not finite: such a gradient would spoil the model for all workers.
        """
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        try:
            predictions = self.model(moved(batch.features, self._device))
            loss = self._spec.loss(moved(batch.labels, self._device), predictions)
            value = float(loss.detach())
            if not math.isfinite(value):
                raise ZooError(
                    f"the loss is {value}",
                    "lower the learning rate, and look for values in the data that are no numbers",
                )
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call] # torch doesn't annotate it
        finally:
            rows = layers.collect_gradients(self.model)  # else the layers keep the rows of this minibatch
        dense = {
            name: (parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad).cpu()
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }
        return value, Gradients(dense, tuple(rows), buffers(self.model))

    def predictions(self, batch: Batch) -> Any:
        """Return what the model returns for a minibatch, on the CPU."""
        self.model.eval()
        with torch.inference_mode():
            return moved(self.model(moved(batch.features, self._device)), torch.device("cpu"))


def buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return what the model itself changes and `state_dict` has, such as running means, on the CPU."""
    saved = model.state_dict().keys()
    return {name: buffer.detach().cpu() for name, buffer in model.named_buffers() if name in saved}


def moved(value: Any, device: torch.device) -> Any:
    """Return tensors, however deep in mappings and sequences, on a device; anything else is returned as it is."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: moved(each, device) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(each, device) for each in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(each, device) for each in value)
    return value
