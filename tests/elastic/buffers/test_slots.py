"""What it costs to keep the buffers of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tidewater.elastic.buffers.slots import Slots

NO_KERNEL = ("aten.empty_like.default", "aten.detach.default")
"""A GPU does nothing for them."""


class Kernels(TorchDispatchMode):
    """Notes the operations that would run on a GPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if str(function) not in NO_KERNEL:
            self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def kernels(act: Callable[[], object]) -> list[str]:
    found = Kernels()
    with found:
        act()
    return found.names


@pytest.mark.parametrize("layers", [1, 30])
def test_the_buffers_of_all_layers_are_copied_by_one_operation(layers: int) -> None:
    model = nn.Sequential(*(nn.BatchNorm1d(3) for _ in range(layers)))
    slots = Slots(model)
    slots.find()
    slots.note()
    model(torch.randn(4, 3))
    values: dict[str, Any] = {}
    found = [
        kernels(lambda: values.update(slots.changed())),
        kernels(slots.restore),
        kernels(lambda: slots.put(values)),
        kernels(slots.note),
    ]
    assert len(values) == 3 * layers
    assert found == [["aten._foreach_copy_.default"]] * 4
