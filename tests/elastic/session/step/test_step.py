"""One step in a group of one: gradients, buffers and the values sent with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.alone import form_alone, opened_alone, stepper_of
from tests.elastic.group.nccl import double
from tests.elastic.session.step.conftest import loss, prepared
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import ConfigError, Diverged, GroupBroken
from tidewater.elastic.group.group import Group, open_group
from tidewater.elastic.peer import drift
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper, Vote

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=[open_group, double.open_group], ids=["gloo", "nccl"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    yield from opened_alone(request.param)


def made(
    group: Group, amp: str = "off", model: nn.Module | None = None, optimized: Sequence[nn.Parameter] = ()
) -> tuple[Stepper, State]:
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    form_alone(group)
    return stepper_of(group, model, loss, torch.optim.SGD(optimized or model.parameters(), lr=0.1), amp=amp)


def bad() -> Prepared:
    """Return a step with a value that is not a number."""
    step = prepared(6)
    step.micro[0].batch[0][0, 0] = float("nan")
    return step


def gradients(state: State) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in state.model.parameters() if parameter.grad is not None]


def test_accumulated_micro_batches_give_the_gradient_of_the_whole_batch(group: Group) -> None:
    def without_norm(sizes: tuple[int, ...]) -> list[torch.Tensor]:
        stepper, state = made(group)
        state.model[1].eval()  # type: ignore[index]
        outcome = stepper.gradients(prepared(*sizes))
        assert outcome.loss == pytest.approx(1.2, abs=0.5)
        return gradients(state)

    for one, several in zip(without_norm((12,)), without_norm((5, 4, 3)), strict=True):
        torch.testing.assert_close(one, several)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels-last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradients_of_every_step_are_those_of_plain_autograd(
    group: Group, memory: torch.memory_format, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    convolutions: Any = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 3))
    model = convolutions.to(memory_format=memory, dtype=dtype)
    stepper, state = made(group, model=model)
    for _ in range(4):
        batch = torch.randn(5, 2, 5, 5).to(memory_format=memory, dtype=dtype), torch.arange(5) % 3
        expected = torch.autograd.grad(loss(model, batch), list(model.parameters()))
        outcome = stepper.gradients(Prepared(Step((0,), Cursor()), (Micro(batch, 1.0, 5),)))
        for one, other in zip(gradients(state), expected, strict=True):
            torch.testing.assert_close(one, other)
        stepper.apply(outcome, factor=1.0)


def test_a_step_changes_buffers_only_when_it_is_applied(group: Group) -> None:
    stepper, state = made(group)
    before = {name: value.clone() for name, value in state.model.named_buffers()}
    outcome = stepper.gradients(prepared(6, 6))
    for name, value in state.model.named_buffers():
        assert torch.equal(value, before[name])
    stepper.apply(outcome, factor=1.0)
    assert not torch.equal(state.model[1].running_mean, before["1.running_mean"])  # type: ignore[index]


def test_the_time_of_every_ranks_part_of_the_step_before_is_sent_with_the_gradients(group: Group) -> None:
    stepper, _ = made(group)
    assert stepper.gradients(prepared(6)).work_seconds == (0.0,)
    assert stepper.gradients(prepared(6), lambda: Vote(work_seconds=0.25)).work_seconds == (0.25,)


def test_a_constant_buffer_stays_unchanged(group: Group) -> None:
    stepper, state = made(group)
    table = torch.rand(5)
    state.model.register_buffer("table", table.clone())
    stepper = Stepper(stepper._training, state, group, amp="off")

    stepper.apply(stepper.gradients(prepared(6)), factor=1.0)
    assert torch.equal(dict(state.model.named_buffers())["table"], table)


def test_a_failed_step_does_not_change_parameters_or_buffers(group: Group) -> None:
    stepper, state = made(group)
    digest = state.digest()
    group.interrupt("lost b")
    with pytest.raises(GroupBroken, match="lost b"):
        stepper.gradients(prepared(6))
    assert state.digest() == digest


def test_a_step_whose_sums_were_aborted_is_not_applied(group: Group) -> None:
    """The garbage that NCCL leaves may look like a sum."""
    stepper, state = made(group)
    digest = state.digest()
    with pytest.raises(GroupBroken, match="lost b"):
        stepper.gradients(prepared(6), meanwhile=lambda: group.interrupt("lost b"))
    assert state.digest() == digest


def test_a_step_is_not_applied_if_its_ballot_is_no_sum_of_its_generation(group: Group) -> None:
    stepper, state = made(group)
    digest = state.digest()

    def before_the_sums_are_read() -> None:
        group.uuid += 1

    with stepper.rehearsal(), pytest.raises(GroupBroken, match="not the sum of 1 ranks of this generation"):
        stepper.gradients(prepared(6), meanwhile=before_the_sums_are_read)
    assert state.digest() == digest
    with pytest.raises(GroupBroken):
        group.check()


def test_a_nan_loss_stops_training_and_names_the_step(group: Group) -> None:
    stepper, state = made(group)
    state.step = 41
    with pytest.raises(Diverged, match="step 42"):
        stepper.gradients(bad())


@pytest.mark.parametrize("lost", [False, True], ids=["all-answer", "a-rank-is-lost"])
def test_no_rank_ends_for_a_nan_loss_before_all_ranks_know_of_it(
    group: Group, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepper, _ = made(group)
    confirmed = []

    def confirm() -> None:
        confirmed.append(True)
        if lost:
            raise GroupBroken("lost")

    monkeypatch.setattr(group, "confirm", confirm)
    with pytest.raises(Diverged):
        stepper.gradients(bad())
    assert confirmed == [True]


def test_an_error_of_the_models_own_group_is_not_attributed_to_that_of_the_workers(group: Group) -> None:
    def fail(model: nn.Module, batch: Any) -> torch.Tensor:
        raise RuntimeError("[gloo/pair.cc:1] Connection closed by peer")

    stepper, state = made(group)
    stepper = Stepper(replace(stepper._training, loss=fail), state, group, amp="off")
    with pytest.raises(RuntimeError, match="closed by peer"):
        stepper.gradients(prepared(6))
    group.confirm()


def test_a_loss_per_sample_is_refused_with_the_remedy(group: Group) -> None:
    stepper, state = made(group)
    training = replace(stepper._training, loss=lambda model, batch: model(batch[0]).sum(dim=1))
    stepper = Stepper(training, state, group, amp="off")

    with pytest.raises(ConfigError, match=r"shape \(6,\): it must return one number, the mean"):
        stepper.gradients(prepared(6))


def test_an_optimizer_of_another_models_parameters_is_refused_with_the_remedy(group: Group) -> None:
    with pytest.raises(ConfigError, match=r"a parameter that its model doesn't have: build it over the model's"):
        made(group, optimized=[nn.Parameter(torch.zeros(1))])


def test_gradients_of_parameters_outside_the_optimizer_do_not_accumulate(group: Group) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    stepper, state = made(group, model=model, optimized=list(model[1].parameters()))
    seen = []
    for _ in range(2):
        stepper.gradients(prepared(6))
        seen.append(gradients(state))
    assert all(map(torch.equal, *seen))


def test_the_learning_rate_is_the_initial_rate_times_the_factor_after_any_number_of_calls(group: Group) -> None:
    stepper, state = made(group)
    for factor in (0.5, 0.25):
        used = stepper.apply(stepper.gradients(prepared(6)), factor=factor)
        assert used == pytest.approx(0.1 * factor)
        assert next(state.optimizers.groups())["lr"] == 0.1


def test_all_ranks_learn_with_the_gradients_whether_every_rank_knows_of_a_change(group: Group) -> None:
    stepper, _ = made(group)
    assert stepper.gradients(prepared(6), lambda: Vote(knows=True)).everyone_knows
    assert not stepper.gradients(prepared(6)).everyone_knows


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_takes_a_step(group: Group, amp: str) -> None:
    stepper, state = made(group, amp)
    digest = state.digest()
    stepper.apply(stepper.gradients(prepared(6)), factor=1.0)
    assert state.digest() != digest


def test_overlapped_work_runs_after_this_ranks_part_and_before_waiting_for_the_others(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepper, _ = made(group)
    order: list[str] = []

    def noted(name: str) -> None:
        usual = getattr(group, name)

        def note(*given: Any) -> Any:
            order.append(name)
            return usual(*given)

        monkeypatch.setattr(group, name, note)

    noted("begin")
    noted("complete")
    with stepper.rehearsal():
        stepper.gradients(prepared(6), meanwhile=lambda: order.append("meanwhile"))
    assert order == ["begin", "meanwhile", "complete"]


def test_steps_of_one_group_do_not_share_their_outcomes(group: Group) -> None:
    stepper, state = made(group)
    one, two = prepared(12), prepared(5, 7)
    expected = []
    for step in (one, two):
        stepper.gradients(step)
        expected.append([value.clone() for value in gradients(state)])
    for step, values in ((two, expected[1]), (one, expected[0])):
        stepper.gradients(step)
        for mine, theirs in zip(gradients(state), values, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("equal", [True, False])
def test_a_comparison_of_states_gives_the_step_up_where_they_differ(
    group: Group, monkeypatch: pytest.MonkeyPatch, equal: bool
) -> None:
    stepper, state = made(group, model=nn.Linear(4, 3))
    digest = state.digest()
    sums = stepper._reducer.sums

    def of_two() -> Sequence[torch.Tensor]:
        """Return what two ranks have sent: the same, or the other one another checksum."""
        monkeypatch.setattr(group, "size", 1)
        ballot, check = sums()
        monkeypatch.setattr(group, "size", 2)
        return [ballot * 2, check * 2 if equal else check + drift.digits(torch.tensor(1), CPU)]

    monkeypatch.setattr(stepper._reducer, "sums", of_two)
    stepper.gradients(prepared(6))
    if equal:
        stepper.gradients(prepared(6), compare=True)
    else:
        with pytest.raises(GroupBroken, match="states of the workers differ"):
            stepper.gradients(prepared(6), compare=True)
    assert state.suspect is not equal
    assert state.digest() == digest
