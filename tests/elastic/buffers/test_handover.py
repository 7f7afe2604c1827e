"""All buffers of a worker arrive at a newcomer and in a checkpoint, bit for bit, whatever passes have made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.alone import state_of
from tidewater.elastic.session.state import State
from tidewater.elastic.tree import join, split

NAN = float("nan")
VALUES: dict[str, torch.Tensor] = {
    "floats": torch.tensor([-float("inf"), NAN, -0.0, 1e-45]),
    "halfs": torch.tensor([1.5]).half(),
    "bfloat16s": torch.tensor([1.5]).bfloat16(),
    "float64": torch.tensor([1 + 2**-52], dtype=torch.float64),
    "complex64": torch.tensor([1 - 2j]),
    "bools": torch.tensor([True, False]),
    "ints": torch.tensor([2**62 + 1]),
    "bytes": torch.tensor([255], dtype=torch.uint8),
    "scalar": torch.tensor(3),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
}


class Model(nn.Module):
    """Has the same buffers twice: persistent, and not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)
        self.layers = nn.ModuleList(nn.Module() for _ in range(2))
        for persistent, layer in zip((True, False), self.layers, strict=True):
            for name, value in VALUES.items():
                layer.register_buffer(name, value.detach().clone().zero_(), persistent=persistent)
            layer.register_buffer("expanded", torch.zeros(2, 1).expand(2, 3), persistent=persistent)
            layer.register_buffer("grows", torch.zeros(2), persistent=persistent)
            layer.register_buffer("dropped", torch.zeros(2), persistent=persistent)
            layer.register_buffer("none", None, persistent=persistent)
        self.register_buffer("mask", torch.ones(3), persistent=False)


def changed() -> State:
    """Return the state of a worker in which passes have changed all buffers but the mask."""
    state = state_of(Model())
    layers: Any = state.model.layers
    for persistent, layer in zip((True, False), layers, strict=True):
        for name, value in VALUES.items():
            setattr(layer, name, value.view_as(value))
        layer.grows, layer.dropped, layer.none = torch.ones(5), None, torch.ones(2, dtype=torch.int32)
        layer.register_buffer("late", torch.ones(4), persistent=persistent)
    return state


def sent(tree: Any) -> Any:
    """Return the tree as it arrives."""
    tensors: dict[str, torch.Tensor] = {}

    def take(name: str, tensor: torch.Tensor) -> torch.Tensor:
        tensors[name] = tensor.clone()
        return tensor

    return join(split(tree, take).outline, tensors)


@pytest.mark.parametrize(
    "hand_over",
    [lambda one, other: other.load(sent(one.whole())), lambda one, other: other.resume(sent(one.tree()))],
    ids=["to-a-newcomer", "by-a-checkpoint"],
)
def test_every_buffer_is_handed_over_bit_for_bit(hand_over: Callable[[State, State], object]) -> None:
    source, target = changed(), state_of(Model())
    hand_over(source, target)
    assert target.digest() == source.digest()
    for one, other in zip(source.model.named_buffers(), target.model.named_buffers(), strict=True):
        assert one[0] == other[0]
        assert one[1].dtype == other[1].dtype
    assert target.model.state_dict().keys() == source.model.state_dict().keys()


def test_a_newcomer_gets_what_a_script_has_built_by_chance() -> None:
    built = Model()
    built.mask = torch.tensor([0.507, 1.093, 2.0])
    target = state_of(Model())
    target.load(sent(state_of(built).whole()))
    assert torch.equal(target.model.get_buffer("mask"), built.mask)


def test_a_resumed_script_keeps_the_constants_that_it_builds_now() -> None:
    source, longer = changed(), Model()
    longer.mask = torch.ones(6)
    target = state_of(longer)
    target.resume(sent(source.tree()))
    assert torch.equal(target.model.get_buffer("mask"), torch.ones(6))
    assert "mask" not in source.tree()["buffers"]


def test_constants_are_still_constants_for_a_worker_that_has_got_the_state_from_another() -> None:
    target = state_of(Model())
    target.load(sent(changed().whole()))
    assert "mask" not in target.tree()["buffers"]
    assert "layers.1.floats" in target.tree()["buffers"]


def test_a_buffer_of_a_module_that_the_script_has_no_longer_is_left_out() -> None:
    tree = sent(changed().tree())
    tree["buffers"]["gone.value"] = torch.ones(1)
    state_of(Model()).resume(tree)
