"""A step that does not fit in memory leaves nothing behind, and the next attempt is half as large."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.session.step.conftest import FEATURES, loss, prepared
from tidewater.elastic.buffers import slots
from tidewater.elastic.errors import ConfigError, OutOfMemory
from tidewater.elastic.group.group import Group
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper

Made = Callable[..., tuple[Stepper, State]]
FITS = 4
FAR_TOO_MUCH = 2**50


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def allocate(samples: int) -> None:
    """Allocate memory; torch's allocator really fails for more samples than fit."""
    if samples > FITS:
        torch.empty(FAR_TOO_MUCH, dtype=torch.uint8)


def simulate(samples: int) -> None:
    """Fail as the allocator of a GPU does."""
    if samples > FITS:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Greedy(torch.autograd.Function):
    """Needs the memory only in its backward pass."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
        context.samples = len(values)
        return values.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        allocate(context.samples)
        return gradients[0]


def in_forward(fail: Callable[[int], None]) -> Callable[[nn.Module, Any], torch.Tensor]:
    def limited(model: nn.Module, batch: Any) -> torch.Tensor:
        result = loss(model, batch)
        fail(len(batch[0]))
        return result

    return limited


def in_backward(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(Greedy.apply(model(batch[0])), batch[1])


LOSSES = {"cpu": in_forward(allocate), "gpu": in_forward(simulate), "backward": in_backward}


@pytest.mark.parametrize("place", LOSSES)
def test_a_step_that_does_not_fit_changes_nothing_and_is_possible_with_half_the_micro_batch(
    made: Made, form: Callable[[], Group], place: str
) -> None:
    stepper, state = made(net(), loss=LOSSES[place])
    before = {name: value.clone() for name, value in state.model.state_dict().items()}
    with pytest.raises(OutOfMemory, match="8 samples do not fit in the memory of this worker"):
        stepper.gradients(prepared(8, 3))
    assert state.micro_batch == 4
    assert all(torch.equal(value, before[name]) for name, value in state.model.state_dict().items())
    assert all(parameter.grad is None for parameter in state.model.parameters())
    form()
    stepper.apply(stepper.gradients(prepared(4, 4, 3)), factor=1.0)
    assert not torch.equal(state.model.state_dict()["0.weight"], before["0.weight"])


def test_the_activations_are_freed_before_the_next_attempt(made: Made) -> None:
    seen: list[weakref.ref[torch.Tensor]] = []

    def limited(model: nn.Module, batch: Any) -> torch.Tensor:
        activations = model(batch[0])
        seen.append(weakref.ref(activations))
        simulate(len(batch[0]))
        return nn.functional.cross_entropy(activations, batch[1])

    stepper, _ = made(net(), loss=limited)
    with pytest.raises(OutOfMemory) as caught:
        stepper.gradients(prepared(8))
    assert caught.value is not None  # the error, which refers to the frames, still exists
    assert [activations() for activations in seen] == [None]


def test_one_sample_that_does_not_fit_is_an_error_that_names_the_remedy(made: Made) -> None:
    def limited(model: nn.Module, batch: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    stepper, _ = made(net(), loss=limited)
    with pytest.raises(ConfigError, match=r"one sample does not fit .* take a smaller model or a larger GPU"):
        stepper.gradients(prepared(1))


def test_a_model_without_memory_for_copies_of_its_buffers_is_left_as_it_is_and_the_remedy_is_named(
    made: Made, form: Callable[[], Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net()
    model.register_buffer("mask", torch.ones(3))
    before = {name: (value, value.clone()) for name, value in model.named_buffers()}
    stepper, state = made(model)

    def clone(tensor: torch.Tensor) -> torch.Tensor:
        simulate(FITS + 1)
        return tensor

    with monkeypatch.context() as full:
        full.setattr(slots, "_clone", clone)
        with pytest.raises(OutOfMemory, match="8 samples do not fit in the memory of this worker"):
            stepper.gradients(prepared(8))
        form()
        with pytest.raises(ConfigError, match=r"one sample does not fit .* take a smaller model or a larger GPU"):
            stepper.gradients(prepared(1))
    assert state.micro_batch == 4
    for name, (tensor, content) in before.items():
        assert model.get_buffer(name) is tensor
        assert torch.equal(tensor, content)


def test_copies_that_fail_midway_do_not_count_as_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Module()
    for name in ("first", "second"):
        model.register_buffer(name, torch.zeros(1))
    found = slots.Slots(model)
    found.find()
    found.note()
    model.get_buffer("first").fill_(5.0)
    model.register_buffer("second", torch.zeros(2))
    with monkeypatch.context() as full:
        full.setattr(slots, "_clone", lambda tensor: simulate(FITS + 1))
        with pytest.raises(torch.OutOfMemoryError):
            found.note()
    found.note()
    model.get_buffer("first").fill_(6.0)
    found.restore()
    assert model.get_buffer("first").tolist() == [5.0]


def test_an_optimizer_without_enough_memory_ends_the_worker_and_names_the_remedy(made: Made) -> None:
    class Large(torch.optim.SGD):
        def step(self, *_: Any) -> None:  # type: ignore[override]
            torch.empty(FAR_TOO_MUCH, dtype=torch.uint8)

    model = net()
    stepper, _ = made(model, optimizer=Large(model.parameters(), lr=0.1))
    outcome = stepper.gradients(prepared(6))
    with pytest.raises(ConfigError, match=r"the optimizer's step does not fit .* an optimizer with less state"):
        stepper.apply(outcome, factor=1.0)


def test_other_errors_of_the_model_are_not_taken_for_a_lack_of_memory(made: Made) -> None:
    def wrong(model: nn.Module, batch: Any) -> torch.Tensor:
        raise RuntimeError("shapes differ")

    stepper, state = made(net(), loss=wrong)
    with pytest.raises(RuntimeError, match="shapes differ"):
        stepper.gradients(prepared(8))
    assert state.micro_batch == 0
