"""Batch normalization of a single sample with one value per map has a defined meaning."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.elastic.session.step.conftest import FEATURES, prepared
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.norms import lone_sample
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper

Made = Callable[..., tuple[Stepper, State]]
LAYERS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "features": (nn.BatchNorm1d, (1, 5)),
    "one-step-sequences": (nn.BatchNorm1d, (1, 5, 1)),
    "maps": (nn.BatchNorm2d, (1, 5, 1, 1)),
    "volumes": (nn.BatchNorm3d, (1, 5, 1, 1, 1)),
}


def layer(make: Callable[..., Any], **settings: Any) -> Any:
    """Return a layer that has been trained for a while."""
    made = make(5, **settings)
    shapes: dict[Any, tuple[int, ...]] = {nn.BatchNorm1d: (9, 5), nn.BatchNorm2d: (9, 5, 1, 1)}
    torch.manual_seed(0)
    nn.init.uniform_(made.weight)
    nn.init.uniform_(made.bias)
    made(torch.rand(shapes.get(make, (9, 5, 1, 1, 1))))
    return made


def passed(module: nn.Module, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the result and the gradients of the values and of the parameters."""
    values = values.clone().requires_grad_()
    result = module(values)
    by_channel = result.flatten(2).sum(-1) if result.dim() > 2 else result
    return result, *torch.autograd.grad((by_channel @ torch.arange(5.0)).sum(), [values, *module.parameters()])


@pytest.mark.parametrize("name", LAYERS)
def test_a_lone_value_is_normalized_with_the_running_statistics_which_stay_as_they_are(name: str) -> None:
    make, shape = LAYERS[name]
    trained = layer(make)
    evaluated, before = copy.deepcopy(trained).eval(), copy.deepcopy(trained.state_dict())
    values = torch.rand(shape)
    with lone_sample(trained):
        found = passed(trained, values)
    assert all(map(torch.equal, found, passed(evaluated, values)))
    assert trained.training
    assert all(torch.equal(value, before[key]) for key, value in trained.state_dict().items())
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        trained(values)


@pytest.mark.parametrize("name", LAYERS)
def test_a_lone_value_without_running_statistics_becomes_the_bias(name: str) -> None:
    make, shape = LAYERS[name]
    trained = layer(make, track_running_stats=False)
    with lone_sample(trained):
        result, input_gradient, weight_gradient, bias_gradient = passed(trained, torch.rand(shape))
    assert result.shape == shape
    torch.testing.assert_close(result.flatten(), trained.bias)
    assert not input_gradient.any()
    assert not weight_gradient.any()
    assert torch.equal(bias_gradient, torch.arange(5.0))


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("shape", [(1, 5, 2, 1), (2, 5, 1, 1)])
def test_several_values_of_a_lone_sample_are_normalized_as_usual(shape: tuple[int, ...], tracked: bool) -> None:
    trained = layer(nn.BatchNorm2d, track_running_stats=tracked)
    usual = copy.deepcopy(trained)
    values = torch.rand(shape)
    expected = passed(usual, values)
    with lone_sample(trained):
        assert all(map(torch.equal, passed(trained, values), expected))
    assert all(map(torch.equal, trained.state_dict().values(), usual.state_dict().values()))


def test_frozen_layers_stay_frozen() -> None:
    frozen = layer(nn.BatchNorm1d).eval()
    with lone_sample(frozen):
        frozen(torch.rand(1, 5))
    assert not frozen.training


class Compiled(nn.Module):
    """A model with one compiled part."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self._compiled: Any = torch.compile(inner, backend="aot_eager")

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self._compiled(values)
        return result


WRAPPED: dict[str, Callable[[nn.Module], Any]] = {
    "plain": lambda model: model,
    "part-compiled": Compiled,
    "compiled": functools.partial(torch.compile, backend="aot_eager"),
}


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("kind", WRAPPED)
def test_a_step_of_one_sample_trains_a_model_with_batch_normalization(made: Made, kind: str, tracked: bool) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8, track_running_stats=tracked)
    stepper, state = made(WRAPPED[kind](nn.Sequential(nn.Linear(FEATURES, 8), norm, nn.Linear(8, 3))))
    for sizes in ((4,), (1,), (2, 1), (4,), (1,)):
        before = copy.deepcopy(norm.state_dict())
        digest = state.digest()
        stepper.apply(stepper.gradients(prepared(*sizes)), factor=1.0)
        assert state.digest() != digest
        learnt = any(not torch.equal(value, before[key]) for key, value in norm.state_dict().items() if "run" in key)
        assert learnt == (tracked and sizes != (1,))


class Forgetful(nn.Module):
    """Stores no activations: its backward pass repeats the forward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(self.inner, values, use_reentrant=False)
        return result


def test_activations_that_are_computed_again_in_the_backward_pass_are_the_same(made: Made) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    gradients = []
    for kind in (model, Forgetful(model)):
        stepper, _ = made(kind)
        stepper.gradients(prepared(1))
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert len(gradients[0]) == 6
    assert all(map(torch.equal, *gradients))


def test_a_synchronized_layer_is_refused_by_name(made: Made) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.SyncBatchNorm(8), nn.Linear(8, 3))
    with pytest.raises(ConfigError, match=r"the model's layer 1 is a SyncBatchNorm, .* use BatchNorm"):
        made(model)
