"""A process that divides a model takes part in every pass, whatever its own samples and losses are."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from tests.elastic.alone import default_group_alone, form_alone, opened_alone
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import ConfigError, ShortOfMemory
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.replica import Replica
from tidewater.elastic.script.content import Script
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.session.step import Stepper, Vote
from tidewater.elastic.sharded.stepper import ShardedStepper
from tidewater.elastic.training import Training


@pytest.fixture(scope="module", autouse=True)
def default_group() -> Iterator[None]:
    yield from default_group_alone()


@pytest.fixture
def group() -> Iterator[Group]:
    for group in opened_alone():
        form_alone(group)
        yield group


class Others(Replica):
    """A worker in which another process has the same ballot."""

    def __init__(self) -> None:
        super().__init__(0, 2, lambda tensor: tensor.mul_(2), lambda place, seconds: None)

    def vote(self, *, fails: bool = False, says: bool = False) -> bool:
        """Return it: no process fails."""
        return says


def stepper(group: Group, loss: Any, model: nn.Module | None = None) -> ShardedStepper:
    torch.manual_seed(0)
    model = model or nn.Linear(2, 3)
    fully_shard(model)
    training = Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=TensorDataset(torch.zeros(1)),
        loss=loss,
    )
    state = State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))
    return ShardedStepper(training, state, group, replica=Others(), amp="off", seed=0)


def prepared(*weights: float) -> Prepared:
    micro = tuple(Micro(torch.ones(2, 2), weight, 2) for weight in weights)
    return Prepared(Step(tuple(range(8)), Cursor()), micro)


def parts(made: Stepper) -> list[torch.Tensor]:
    found: list[Any] = [each.grad for each in made._parameters]
    return [each.to_local() for each in found if each is not None]


def gradients(made: ShardedStepper) -> list[float]:
    return [float(each.abs().sum()) for each in parts(made)]


def test_the_ballot_is_summed_over_the_processes(group: Group) -> None:
    made = stepper(group, lambda model, batch: model(batch).sum() * 0 + 3)
    outcome = made.gradients(prepared(0.25, 0.25), lambda: Vote(knows=True, saves=True))
    assert outcome.loss == pytest.approx(2 * 0.5 * 3)
    assert outcome.saves
    assert not outcome.stops


def test_a_pass_of_weight_0_has_gradients_of_0_that_count(group: Group) -> None:
    made = stepper(group, lambda model, batch: model(batch).sum())
    made.gradients(prepared(0.0))
    assert gradients(made) == [0.0, 0.0]


def test_a_constant_loss_has_a_backward_pass_too(group: Group) -> None:
    backward: list[int] = []

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        found: Any = model(batch)
        found.register_hook(lambda gradient: backward.append(int(gradient.abs().sum())))
        return torch.tensor(1.0)

    made = stepper(group, loss)
    made.gradients(prepared(0.5))
    assert backward == [0]
    assert gradients(made) == [0.0, 0.0]


def test_what_the_model_returns_is_not_kept_through_the_backward_pass(group: Group) -> None:
    outputs: list[Any] = []
    living: list[int] = []

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        found: Any = model(batch)
        outputs.append(weakref.ref(found))
        scaled: Any = found * 2
        scaled.register_hook(lambda gradient: living.append(sum(each() is not None for each in outputs)))
        total: torch.Tensor = scaled.sum()
        return total

    stepper(group, loss).gradients(prepared(0.5))
    assert living == [0]


def test_the_gradients_that_fully_shard_makes_are_released_when_they_are_in_the_memory_that_is_summed(
    group: Group,
) -> None:
    model = nn.Linear(2, 3)
    made = stepper(group, lambda model, batch: model(batch).sum(), model)
    parts: list[Any] = []
    for parameter in model.parameters():
        register: Any = parameter.register_post_accumulate_grad_hook
        register(lambda parameter: parts.append(weakref.ref(parameter.grad.to_local())))
    with made.rehearsal():
        made.gradients(prepared(0.5))
    assert gradients(made) == [6.0, 3.0]
    assert [each() for each in parts] == [None, None]


def test_a_loss_that_does_not_call_the_model_is_refused(group: Group) -> None:
    made = stepper(group, lambda model, batch: torch.tensor(1.0))
    with pytest.raises(ConfigError, match="has not called the model, which is divided among processes"):
        made.gradients(prepared(0.5))


def test_a_model_that_changes_buffers_in_passes_is_refused_by_name(group: Group) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    made = stepper(group, lambda model, batch: model(batch).sum(), model)
    with pytest.raises(ConfigError, match=r"changes the model's buffer 1\.num_batches_tracked"):
        made.gradients(prepared(0.5))


def test_too_little_memory_ends_the_process_with_the_number_to_try(group: Group) -> None:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(ShortOfMemory, match="all of them start again with 1 samples in a pass") as caught:
        stepper(group, loss).gradients(prepared(0.5))
    assert caught.value.samples == 1


@pytest.mark.parametrize("divides", [False, True])
def test_the_gradients_are_summed_in_the_type_of_the_flag(divides: bool, group: Group) -> None:
    made = stepper(group, lambda model, batch: model(batch).square().sum())
    script: Any = Script(lambda config: made._training)
    script._training, script._replica = made._training, made._replica if divides else None
    script._loader, script._watch = SimpleNamespace(), SimpleNamespace(serve=lambda *_: None)
    script.requests = None
    session: Any = SimpleNamespace(
        config=SimpleNamespace(amp="off", sum_dtype="bf16", seed=0),
        worker=SimpleNamespace(state=made._state, group=group),
        log=None,
        is_overdue=None,
    )
    of_script = script.material(session).stepper
    assert isinstance(of_script, ShardedStepper) is divides
    of_script.gradients(prepared(1.0))
    assert all(torch.equal(each, each.bfloat16().float()) for each in parts(of_script))
    made.gradients(prepared(1.0))
    assert not all(torch.equal(each, each.bfloat16().float()) for each in parts(made))
