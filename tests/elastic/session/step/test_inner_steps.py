"""With ``--sync-every`` a rank makes inner steps by itself, and the step is what they have changed."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.session.step.conftest import FEATURES, loss
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import ConfigError, GroupBroken, OutOfMemory, RecordError
from tidewater.elastic.group.group import Group
from tidewater.elastic.method.outer import Local, Outer
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper, Vote

Made = Callable[..., tuple[Stepper, State]]
BATCH, INNER = 6, 3
PLAIN = (1.0, 0.0)
"""An outer optimizer that makes the mean of the ranks' parameters the new ones."""


class Decreasing:
    """Makes AdamW with a schedule by inner steps, and clips."""

    def __init__(self, model: nn.Module) -> None:
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)

    def clip(self, model: nn.Module) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def batch(number: int, samples: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(samples, FEATURES, generator=torch.Generator().manual_seed(number))
    return images, torch.arange(samples) % 3


def round_of(number: int, inner: int = INNER) -> Prepared:
    """Return a step with so many inner steps."""
    total = inner * BATCH
    micros = tuple(Micro(batch(inner * number + index), BATCH / total, BATCH) for index in range(inner))
    return Prepared(Step(tuple(range(total)), Cursor(0, total), BATCH), micros)


def trained_plainly(steps: int) -> nn.Module:
    """Return the network after so many steps of plain torch."""
    model = network()
    means = Decreasing(model)
    for number in range(steps):
        means.optimizer.zero_grad()
        torch.autograd.backward(loss(model, batch(number)))
        means.clip(model)
        means.optimizer.step()
        means.scheduler.step()
    return model


def opened(made: Made, outer: tuple[float, float] = PLAIN, **more: Any) -> tuple[nn.Module, Stepper, State]:
    model = network()
    means = Decreasing(model)
    fields = {"scheduler": means.scheduler, "before_step": means.clip, **more}
    return model, *made(model, optimizer=means.optimizer, outer=outer, **fields)


def values(state: State) -> dict[str, Any]:
    return copy.deepcopy({**state.whole(), "present": None})


def count(state: State) -> int:
    """Return how many tensors there are of the shape of the first weight, which no batch and no activation has."""
    shape = next(state.model.parameters()).shape
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) and each.shape == shape for each in gc.get_objects())


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_the_inner_steps_of_a_rank_alone_are_those_of_plain_torch(made: Made) -> None:
    model, stepper, state = opened(made)
    for number in range(3):
        lr = stepper.apply(stepper.gradients(round_of(number)), 1.0)
        state.advance(Cursor(), 1)
    expected = trained_plainly(3 * INNER)
    for (name, mine), its in zip(model.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6, msg=name)
    assert torch.equal(dict(model.named_buffers())["1.num_batches_tracked"], torch.tensor(3 * INNER))
    assert lr == pytest.approx(0.05 * 0.9 ** (3 * INNER - 1))
    assert (state.step, state.extra_steps) == (3, 3 * (INNER - 1))


def test_nothing_has_changed_until_the_step_is_applied(made: Made) -> None:
    _, stepper, state = opened(made)
    stepper.apply(stepper.gradients(round_of(0)), 1.0)
    before = values(state)
    outcome = stepper.gradients(round_of(1))
    assert same(values(state), before)
    stepper.apply(outcome, 1.0)
    assert not same(values(state), before)


@pytest.mark.parametrize("fails_in", range(INNER + 1))
def test_a_discarded_step_changes_nothing_and_its_repetition_has_the_same_bits(
    made: Made, form: Callable[[], Group], fails_in: int
) -> None:
    """It fails in each of its inner steps, and then no further one is made, and in the sums."""
    passes: list[int] = []
    groups: list[Group] = []

    def failing(model: nn.Module, given: Any) -> torch.Tensor:
        passes.append(1)
        if groups and len(passes) == fails_in + 1:
            groups[0].interrupt("a peer was lost")
        return loss(model, given)

    results = []
    for fails in (False, True):
        _, stepper, state = opened(made, loss=failing, outer=(0.7, 0.9))
        stepper.apply(stepper.gradients(round_of(0)), 1.0)
        if fails:
            before = values(state)
            passes.clear()
            groups.append(stepper._group)
            with pytest.raises(GroupBroken):
                stepper.gradients(round_of(1), meanwhile=lambda: groups[0].interrupt("a peer was lost"))
            assert len(passes) == min(fails_in + 1, INNER)
            groups.clear()
            assert same(values(state), before)
            form()
        stepper.apply(stepper.gradients(round_of(1)), 1.0)
        results.append(values(state))
    assert same(*results)


def test_a_step_that_runs_out_of_memory_changes_nothing(made: Made) -> None:
    passes: list[int] = []

    def hungry(model: nn.Module, given: Any) -> torch.Tensor:
        passes.append(1)
        if len(passes) == INNER:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return loss(model, given)

    _, stepper, state = opened(made, loss=hungry)
    before = values(state)
    with pytest.raises(OutOfMemory):
        stepper.gradients(round_of(0))
    assert same({**values(state), "micro_batch": 0}, before)
    assert state.micro_batch == BATCH // 2


def test_a_learning_rate_that_on_step_sets_during_a_step_holds(made: Made) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper, _ = made(model, optimizer=optimizer, outer=PLAIN)
    outcome = stepper.gradients(round_of(0))
    optimizer.param_groups[0]["lr"] = 0.01  # the step before is final now
    stepper.apply(outcome, 1.0)
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_a_parameter_group_that_on_step_adds_during_a_step_is_kept_and_trains_from_the_next_one(made: Made) -> None:
    """A layer is unfrozen: its group is added when the inner steps of this step are done."""
    trains, later = nn.Linear(FEATURES, 3), nn.Linear(FEATURES, 3)
    model = nn.ModuleDict({"trains": trains, "later": later})

    def both(_: nn.Module, given: Any) -> torch.Tensor:
        return loss(trains, given) + loss(later, given)

    optimizer = torch.optim.Adam(trains.parameters(), lr=0.1)
    stepper, state = made(model, optimizer=optimizer, outer=PLAIN, loss=both)
    later.requires_grad_(False)
    outcome = stepper.gradients(round_of(0))
    later.requires_grad_(True)
    optimizer.add_param_group({"params": list(later.parameters()), "lr": 0.02})
    before = copy.deepcopy(later.weight)
    stepper.apply(outcome, 1.0)
    assert torch.equal(later.weight, before)
    assert [each["lr"] for each in optimizer.param_groups] == [0.1, 0.02]
    assert float(optimizer.state[trains.weight]["step"]) == INNER, "the moments are those of the inner steps"
    stepper.apply(stepper.gradients(round_of(1)), 1.0)
    assert not torch.equal(later.weight, before)
    assert float(optimizer.state[later.weight]["step"]) == INNER
    state.optimizers.load(copy.deepcopy(state.optimizers.tree()))


def test_a_parameter_group_that_on_step_removes_is_refused(made: Made) -> None:
    model = network()
    optimizer = torch.optim.SGD([{"params": [each]} for each in model.parameters()], lr=0.1)
    stepper, _ = made(model, optimizer=optimizer, outer=PLAIN)
    outcome = stepper.gradients(round_of(0))
    optimizer.param_groups.pop()
    with pytest.raises(RecordError, match="SGD has 4 parameter groups, and 5 in the state"):
        stepper.apply(outcome, 1.0)


def test_a_rank_votes_when_its_inner_steps_are_done(made: Made) -> None:
    """What it learns while it makes them counts in this step: that it must leave, or that a newcomer is there."""
    done, votes = list[int](), list[int]()

    def counted(model: nn.Module, given: Any) -> torch.Tensor:
        done.append(1)
        return loss(model, given)

    def vote() -> Vote:
        votes.append(len(done))
        return Vote(knows=len(done) == INNER)

    _, stepper, _ = opened(made, loss=counted)
    assert stepper.gradients(round_of(0), vote).everyone_knows
    assert votes == [INNER]


def test_each_inner_step_has_the_learning_rate_of_its_place_in_the_schedule(made: Made) -> None:
    asked: list[tuple[int, int]] = []
    _, stepper, _ = opened(made)
    stepper.gradients(round_of(0), pace=lambda done, whole: asked.append((done, whole)) or 1.0)  # type: ignore[func-returns-value]
    assert asked == [(0, 18), (6, 18), (12, 18)]


def test_the_outer_step_is_that_of_nesterov_momentum(made: Made) -> None:
    model, stepper, _ = opened(made, outer=(0.7, 0.9))
    weight, momentum = next(model.parameters()), torch.zeros(5, FEATURES)
    for number in range(3):
        before = weight.detach().clone()
        outcome = stepper.gradients(round_of(number))
        assert weight.grad is not None
        change = weight.grad.clone()
        stepper.apply(outcome, 1.0)
        momentum = 0.9 * momentum + change
        torch.testing.assert_close(weight.detach(), before - 0.7 * (change + 0.9 * momentum), rtol=1e-5, atol=1e-7)


def test_losses_with_weights_are_divided_in_each_inner_step(made: Made) -> None:
    def weighted(model: nn.Module, given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        kept = given[1] != 2
        each = nn.functional.cross_entropy(model(given[0]), given[1], reduction="none")
        return (each * kept).sum(), kept.sum()

    models = []
    for given in (weighted, None):
        torch.manual_seed(0)
        model = nn.Linear(FEATURES, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        models.append(model)
        if given is not None:
            stepper, _ = made(model, optimizer=optimizer, outer=PLAIN, loss=given)
            outcome = stepper.gradients(round_of(0))
            assert 0.5 < outcome.loss < 3
            stepper.apply(outcome, 1.0)
            continue
        for number in range(INNER):
            optimizer.zero_grad()
            total, weight = weighted(model, batch(number))
            torch.autograd.backward(total / weight)
            optimizer.step()
    torch.testing.assert_close(models[0].weight, models[1].weight)


def test_a_parameter_without_a_gradient_is_left_alone(made: Made) -> None:
    unused = nn.Linear(2, 2)
    model = nn.ModuleDict({"used": nn.Linear(FEATURES, 3), "unused": unused})
    before = unused.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
    stepper, state = made(
        model, optimizer=optimizer, outer=(0.7, 0.9), loss=lambda model, given: loss(model["used"], given)
    )
    stepper.apply(stepper.gradients(round_of(0)), 1.0)
    assert torch.equal(unused.weight, before)
    assert sorted(state.tree()["outer"]) == ["used.bias", "used.weight"]


def test_a_step_in_which_no_parameter_trains_changes_none(made: Made) -> None:
    model, stepper, _ = opened(made)
    model.requires_grad_(False)
    before = copy.deepcopy(list(model.parameters()))
    with pytest.warns(UserWarning, match="no gradient was computed"):
        stepper.apply(stepper.gradients(round_of(0)), 1.0)
    assert all(map(torch.equal, model.parameters(), before))


def test_a_discarded_step_leaves_no_copies_of_parameters_and_moments(made: Made) -> None:
    """Else the next attempt would need memory for one set more."""
    _, stepper, state = opened(made)
    stepper.apply(stepper.gradients(round_of(0)), 1.0)
    before = count(state)
    with pytest.raises(GroupBroken):
        stepper.gradients(round_of(1), meanwhile=lambda: stepper._group.interrupt("a peer was lost"))
    assert count(state) == before


@pytest.mark.parametrize("change", ["follows", "is unfrozen"])
def test_a_parameter_that_differs_between_workers_afterwards_is_refused(made: Made, change: str) -> None:
    trains, other = nn.Linear(FEATURES, 3), nn.Linear(FEATURES, 3)
    model = nn.ModuleDict({"trains": trains, "other": other})
    other.requires_grad_(False)

    def before_step(_: nn.Module) -> None:
        if change == "is unfrozen":
            other.requires_grad_(True)
        else:
            other.weight.data.lerp_(trains.weight.data, 0.1)

    def both(_: nn.Module, given: Any) -> torch.Tensor:
        return loss(trains, given) + loss(other, given)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper, _ = made(model, optimizer=optimizer, outer=PLAIN, before_step=before_step, loss=both)
    with pytest.raises(ConfigError, match=r"the parameter other.weight did not require a gradient.*--sync-every"):
        stepper.gradients(round_of(0))


def test_a_rank_without_samples_in_an_inner_step_has_the_schedule_of_the_others(made: Made) -> None:
    model = network()
    means = Decreasing(model)
    _, state = made(model, optimizer=means.optimizer, scheduler=means.scheduler, outer=PLAIN)
    local = Local(model, state.optimizers, Outer(model, *PLAIN))
    local.begin()
    local.skip(1.0)
    local.give(0.0)
    local.put_back()
    assert means.optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    assert local.apply() == pytest.approx(0.05)
    assert means.optimizer.param_groups[0]["lr"] == pytest.approx(0.045)


def test_what_a_newcomer_gets_continues_with_the_same_bits(made: Made) -> None:
    _, stepper, state = opened(made, outer=(0.7, 0.9))
    stepper.apply(stepper.gradients(round_of(0)), 1.0)
    _, other, newcomer = opened(made, outer=(0.7, 0.9))
    newcomer.load(copy.deepcopy(state.whole()))
    for each in (stepper, other):
        each.apply(each.gradients(round_of(1)), 1.0)
    assert same(values(state)["model"], values(newcomer)["model"])
    assert same(values(state)["optimizers"], values(newcomer)["optimizers"])
    assert state.digest() == newcomer.digest()


def test_schedulers_continue_at_the_inner_step_on_resume(made: Made) -> None:
    _, stepper, state = opened(made)
    stepper.apply(stepper.gradients(round_of(0)), 1.0)
    state.advance(Cursor(), 1)
    _, _, resumed = opened(made)
    resumed.resume(copy.deepcopy(state.saved_tree()))
    assert next(resumed.optimizers.groups())["lr"] == pytest.approx(0.05 * 0.9**INNER)
    assert resumed.extra_steps == INNER - 1


def test_a_checkpoint_of_a_synchronous_job_continues_with_an_outer_optimizer_without_momentum(made: Made) -> None:
    _, stepper, state = opened(made, outer=None)  # type: ignore[arg-type]
    stepper.apply(stepper.gradients(round_of(0, inner=1)), 1.0)
    state.advance(Cursor(), 1)
    tree = copy.deepcopy(state.saved_tree())
    del tree["outer"], tree["extra_steps"]  # as an older version has written it
    _, _, resumed = opened(made, outer=(0.7, 0.9))
    resumed.resume(tree)
    assert (resumed.step, resumed.extra_steps, resumed.tree()["outer"]) == (1, 0, {})


def test_moments_belong_to_each_worker_and_are_neither_compared_nor_in_the_digest(made: Made) -> None:
    _, stepper, state = opened(made, outer=(0.7, 0.9))
    stepper.apply(stepper.gradients(round_of(0)), 1.0)
    digest, names = state.digest(), state.named_tensors()
    moments = list(state.tree()["optimizers"][0]["state"].values())
    moments[0]["exp_avg"] += 1
    assert state.digest() == digest
    assert not any(name.startswith("optimizers") for name in names)
    assert any(name.startswith("outer/") for name in names)
    state.tree()["outer"]["0.weight"].add_(1)
    assert state.digest() != digest


def test_an_optimizer_that_evaluates_an_average_of_its_own_is_refused(made: Made) -> None:
    class Averaging(torch.optim.SGD):
        def train(self) -> None: ...

        def eval(self) -> None: ...

    model = network()
    with pytest.raises(ConfigError, match=r"Averaging, evaluates an average of its own.*--sync-every"):
        made(model, optimizer=Averaging(model.parameters(), lr=0.1), outer=PLAIN)
