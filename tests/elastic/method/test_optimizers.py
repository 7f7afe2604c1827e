"""Optimizers, schedulers and the hook before a step do what they do in plain torch, and survive resume and join."""

from __future__ import annotations

import copy
import json
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler

from tests.elastic.method.conftest import Trainee, assert_same_bits, batches, bits, mean_loss, net
from tidewater.elastic.errors import ConfigError, RecordError
from tidewater.elastic.group.group import Group
from tidewater.elastic.tree import join, split

STEPS = 7
Scheduled = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]

SCHEDULERS: dict[str, Scheduled] = {
    "StepLR": lambda sgd: lr_scheduler.StepLR(sgd, 2, gamma=0.3),
    "MultiStepLR": lambda sgd: lr_scheduler.MultiStepLR(sgd, [2, 4, 4]),
    "LambdaLR": lambda sgd: lr_scheduler.LambdaLR(sgd, lambda step: 1 / (1 + step)),
    "ExponentialLR": lambda sgd: lr_scheduler.ExponentialLR(sgd, 0.7),
    "CosineAnnealingLR": lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, 5),
    "CosineAnnealingWarmRestarts": lambda sgd: lr_scheduler.CosineAnnealingWarmRestarts(sgd, 3),
    "OneCycleLR, which moves the momentum": lambda sgd: lr_scheduler.OneCycleLR(sgd, 0.5, total_steps=30),
    "CyclicLR": lambda sgd: lr_scheduler.CyclicLR(sgd, 0.01, 0.1, step_size_up=3),
    "PolynomialLR": lambda sgd: lr_scheduler.PolynomialLR(sgd, 20, 2.0),
    "SequentialLR": lambda sgd: lr_scheduler.SequentialLR(
        sgd, [lr_scheduler.LinearLR(sgd, 0.1, total_iters=3), lr_scheduler.MultiStepLR(sgd, [1, 3])], milestones=[3]
    ),
    "ChainedScheduler": lambda sgd: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(sgd, 0.5, 3), lr_scheduler.ExponentialLR(sgd, 0.9)]
    ),
}
each_scheduler = pytest.mark.parametrize("scheduled", SCHEDULERS.values(), ids=SCHEDULERS.keys())


def sgd_of(model: nn.Module, lr: float = 0.1) -> SGD:
    return SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-3)


def with_scheduler(scheduled: Scheduled, lr: float = 0.1) -> Callable[[nn.Module], dict[str, Any]]:
    def build(model: nn.Module) -> dict[str, Any]:
        sgd = sgd_of(model, lr)
        return {"optimizer": sgd, "scheduler": scheduled(sgd)}

    return build


def plain(
    optimizers: Callable[[nn.Module], Iterable[torch.optim.Optimizer]],
    scheduled: Scheduled | None = None,
    before_step: Callable[[nn.Module], object] = lambda model: None,
    *,
    steps: int = STEPS,
) -> list[torch.Tensor]:
    """Train with plain torch, in one process. Return the parameters."""
    model = net()
    used = list(optimizers(model))
    scheduler = scheduled(used[0]) if scheduled else None
    for batch in batches(steps):
        model.zero_grad()
        torch.autograd.backward(mean_loss(model, batch))
        before_step(model)
        for each in used:
            each.step()
        if scheduler:
            scheduler.step()
    return bits(model)


def handed_over(tree: Any) -> Any:
    """Return the state as another process gets it."""
    tensors: dict[str, torch.Tensor] = {}
    outline = split(tree, lambda name, tensor: tensors.setdefault(name, tensor.clone())).outline
    return join(json.loads(json.dumps(outline)), tensors)


def test_several_optimizers_step_their_own_parameters_as_in_plain_torch(group: Group) -> None:
    def optimizers(model: Any) -> list[torch.optim.Optimizer]:
        return [AdamW(model[0].parameters(), lr=0.01), SGD(model[2].parameters(), lr=0.2, momentum=0.9)]

    trainee = Trainee(group, lambda model: {"optimizer": optimizers(model)})
    trainee.train(batches(STEPS))
    assert_same_bits(bits(trainee.model), plain(optimizers))


@each_scheduler
def test_a_scheduler_of_torch_gives_the_same_bits_as_in_plain_torch(group: Group, scheduled: Scheduled) -> None:
    trainee = Trainee(group, with_scheduler(scheduled))
    trainee.train(batches(STEPS))
    assert_same_bits(bits(trainee.model), plain(lambda model: [sgd_of(model)], scheduled))


@each_scheduler
def test_a_newcomer_gets_a_scheduler_of_torch_with_its_state_and_continues_alike(
    group: Group, scheduled: Scheduled
) -> None:
    steps = batches(STEPS)
    peer, newcomer = (Trainee(group, with_scheduler(scheduled)) for _ in range(2))
    peer.train(steps[:3])
    newcomer.state.load(handed_over(peer.state.tree()))
    assert repr(newcomer.state.tree()) == repr(peer.state.tree())
    newcomer.train(steps[3:])
    assert_same_bits(bits(newcomer.model), plain(lambda model: [sgd_of(model)], scheduled))


@each_scheduler
def test_a_resume_with_an_unchanged_scheduler_continues_as_without_a_break(group: Group, scheduled: Scheduled) -> None:
    steps = batches(STEPS)
    before, after = (Trainee(group, with_scheduler(scheduled)) for _ in range(2))
    before.train(steps[:3])
    assert after.state.resume(handed_over(before.state.tree()))
    after.train(steps[3:])
    assert_same_bits(bits(after.model), plain(lambda model: [sgd_of(model)], scheduled))


def test_a_changed_scheduler_applies_from_the_step_at_which_training_resumes(group: Group) -> None:
    before = Trainee(group, with_scheduler(SCHEDULERS["StepLR"]))
    before.train(batches(4))
    after = Trainee(group, with_scheduler(SCHEDULERS["ExponentialLR"], lr=0.2))
    after.state.resume(handed_over(before.state.tree()))
    assert after.train(batches(2)) == pytest.approx([0.2 * 0.7**4, 0.2 * 0.7**5])


def test_the_factor_of_the_batch_policy_multiplies_the_schedulers_rate_and_leaves_its_course(group: Group) -> None:
    trainee = Trainee(group, with_scheduler(SCHEDULERS["ExponentialLR"]))
    steps = batches(4)
    rates = trainee.train(steps[:2], factor=3.0) + trainee.train(steps[2:], factor=1.0)
    assert rates == pytest.approx([0.3, 0.3 * 0.7, 0.1 * 0.7**2, 0.1 * 0.7**3])


CLIPS: dict[str, Callable[[nn.Module], object]] = {
    "norm": lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    "value": lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.01),
}


@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS.keys())
def test_gradients_are_clipped_as_in_plain_torch(group: Group, clip: Callable[[nn.Module], object]) -> None:
    trainee = Trainee(group, lambda model: {"optimizer": sgd_of(model), "before_step": clip})
    trainee.train(batches(STEPS))
    clipped = plain(lambda model: [sgd_of(model)], before_step=clip)
    assert_same_bits(bits(trainee.model), clipped)
    assert not torch.equal(clipped[0], plain(lambda model: [sgd_of(model)])[0])


@pytest.mark.parametrize("several", [False, True], ids=["one optimizer", "two optimizers"])
def test_the_hook_before_a_step_sees_gradients_without_the_factor_of_fp16(group: Group, several: bool) -> None:
    def norms(amp: str) -> list[float]:
        seen: list[float] = []

        def build(model: Any) -> dict[str, Any]:
            both = [SGD(model[0].parameters(), 0.1), SGD(model[2].parameters(), 0.1)]
            return {
                "optimizer": both if several else sgd_of(model),
                "before_step": lambda model: seen.extend(float(each.grad.norm()) for each in model.parameters()),
            }

        Trainee(group, build, amp=amp).train(batches(2))
        return seen

    assert norms("fp16") == pytest.approx(norms("off"), rel=0.02)


def test_on_resume_hyperparameters_come_from_the_script_and_moments_from_the_checkpoint(group: Group) -> None:
    def adam(**given: Any) -> Callable[[nn.Module], dict[str, Any]]:
        return lambda model: {"optimizer": AdamW(model.parameters(), **given)}

    before = Trainee(group, adam(lr=0.1, betas=(0.9, 0.99), weight_decay=0.1))
    before.train(batches(3))
    after = Trainee(group, adam(lr=0.02, betas=(0.8, 0.95), weight_decay=0.3))
    assert after.state.resume(handed_over(before.state.tree()))
    (settings,) = after.groups()
    assert (settings["lr"], settings["weight_decay"]) == (0.02, 0.3)
    assert settings["betas"] == (0.8, 0.95)
    assert after.train(batches(1)) == [0.02]
    (now,), (then,) = (each.state.tree()["optimizers"] for each in (after, before))
    assert now["state"][0]["step"] == then["state"][0]["step"] + 1


def test_a_newcomer_gets_the_hyperparameters_that_on_step_has_changed(group: Group) -> None:
    peer, newcomer = (Trainee(group, lambda model: {"optimizer": sgd_of(model)}) for _ in range(2))
    peer.train(batches(2))
    for settings in peer.state.optimizers.groups():
        settings["weight_decay"], settings["lr"] = 0.5, 0.03
    newcomer.state.load(handed_over(peer.state.tree()))
    assert newcomer.groups() == peer.groups()
    for each in (peer, newcomer):
        each.train(batches(3))
    assert_same_bits(bits(newcomer.model), bits(peer.model))


def test_a_process_that_resumes_after_it_has_trained_gets_the_scripts_hyperparameters_too(group: Group) -> None:
    trainee = Trainee(group, with_scheduler(SCHEDULERS["ExponentialLR"]))
    trainee.train(batches(2))
    stored = handed_over(trainee.state.tree())
    trainee.train(batches(3))
    for settings in trainee.state.optimizers.groups():
        settings["weight_decay"] = 0.5
    trainee.state.resume(stored)
    assert trainee.groups()[0]["weight_decay"] == 1e-3
    assert trainee.train(batches(1)) == pytest.approx([0.1 * 0.7**2])


class Counting(SGD):
    """Counts its steps in its parameter groups, as apex's FusedAdam and ScheduleFree do."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr)
        self.defaults["k"] = 0
        for settings in self.param_groups:
            settings["k"] = 0

    def step(self, closure: Any = None) -> Any:
        for settings in self.param_groups:
            settings["k"] += 1
        return super().step(closure)


def test_what_an_optimizer_counts_in_its_parameter_groups_continues_on_resume(group: Group) -> None:
    before, after = (Trainee(group, lambda model: {"optimizer": Counting(model.parameters(), 0.1)}) for _ in range(2))
    before.train(batches(3))
    after.state.resume(handed_over(before.state.tree()))
    assert after.groups()[0]["k"] == 3


class Wide(SGD):
    """Keeps sums of gradients in 64 bits."""

    def step(self, closure: Any = None) -> Any:
        for settings in self.param_groups:
            for each in settings["params"]:
                self.state[each].setdefault("sum", torch.zeros_like(each, dtype=torch.float64)).add_(each.grad)
        return super().step(closure)


def test_moments_of_another_type_than_their_parameter_keep_their_bits(group: Group) -> None:
    source, joined, resumed = (
        Trainee(group, lambda model: {"optimizer": Wide(model.parameters(), 0.1)}) for _ in range(3)
    )
    source.train(batches(3))
    joined.state.load(handed_over(source.state.tree()))
    resumed.state.resume(handed_over(source.state.tree()))
    for each in (joined, resumed):
        for mine, theirs in zip(
            each.state.tree()["optimizers"][0]["state"].values(),
            source.state.tree()["optimizers"][0]["state"].values(),
            strict=True,
        ):
            assert mine["sum"].dtype == torch.float64
            assert torch.equal(mine["sum"], theirs["sum"])


class Odd(SGD):
    """Keeps what published optimizers keep: a counter by name (MADGRAD), arrays, a history, text, nested sums."""

    def step(self, closure: Any = None) -> Any:
        state: Any = self.state
        state["k"] = state.get("k", torch.zeros(1, dtype=torch.long)) + 1
        state["rate"] = 0.5 * len(state)
        for each in self.param_groups[0]["params"]:
            mine = state[each]
            mine["last"] = deque([*mine.get("last", ()), each.grad.clone()], maxlen=2)
            mine["norms"] = numpy.append(mine.get("norms", numpy.empty(0)), float(each.grad.norm()))
            mine["sums"] = {"wide": each.grad.double(), "both": [each.grad.double(), torch.tensor(3)]}
            mine["phase"] = "warm"
        return super().step(closure)


def test_state_of_an_optimizer_under_other_keys_and_of_other_kinds_is_restored_exactly(group: Group) -> None:
    source, joined, resumed = (
        Trainee(group, lambda model: {"optimizer": Odd(model.parameters(), 0.1)}) for _ in range(3)
    )
    source.train(batches(3))
    joined.state.load(handed_over(source.state.tree()))
    resumed.state.resume(handed_over(source.state.tree()))
    expected = source.state.tree()["optimizers"][0]["state"]
    assert expected["k"].tolist() == [3]
    for each in (joined, resumed):
        assert repr(each.state.tree()["optimizers"][0]["state"]) == repr(expected)
        assert each.state.tree()["optimizers"][0]["state"][0]["sums"]["wide"].dtype == torch.float64
        assert each.train(batches(1)) == [0.1]
        assert each.state.tree()["optimizers"][0]["state"]["k"].tolist() == [4]


def two_groups(model: Any) -> list[dict[str, Any]]:
    return [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}]


OTHERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another class": (lambda model: Adam(model.parameters(), 0.1), "the state is of SGD, .* optimizer is Adam"),
    "another number of groups": (lambda model: SGD(two_groups(model), 0.1), "SGD has 2 parameter groups, and 1 in the"),
    "other parameters": (lambda model: SGD(model[0].parameters(), 0.1), "other parameters than .* for example 2.bias"),
    "another order": (lambda model: SGD(list(model.parameters())[::-1], 0.1), "parameters than .* in another order"),
    "another number": (
        lambda model: [SGD(model[0].parameters(), 0.1), SGD(model[2].parameters(), 0.1)],
        "the state is of SGD, .* SGD and SGD",
    ),
}


@pytest.mark.parametrize(("other", "named"), OTHERS.values(), ids=OTHERS.keys())
def test_another_optimizer_on_resume_is_refused_by_name_or_starts_with_fresh_moments_with_the_flag(
    group: Group, other: Callable[[nn.Module], Any], named: str
) -> None:
    before = Trainee(group, lambda model: {"optimizer": sgd_of(model)})
    before.train(batches(3))
    tree = handed_over(before.state.tree())
    after = Trainee(group, lambda model: {"optimizer": other(model)})
    unchanged = copy.deepcopy(after.state.tree())
    with pytest.raises(RecordError, match=rf"{named}.*--fresh-optimizer"):
        after.state.resume(tree)
    assert repr(after.state.tree()) == repr(unchanged)
    fresh = Trainee(group, lambda model: {"optimizer": other(model)}, fresh_optimizer=True)
    assert not fresh.state.resume(tree)
    assert_same_bits(bits(fresh.model), bits(before.model))
    assert all(not each["state"] for each in fresh.state.tree()["optimizers"])
    assert fresh.train(batches(1)) == [0.1]


def test_the_flag_for_fresh_moments_keeps_the_moments_of_the_same_optimizer(group: Group) -> None:
    before = Trainee(group, lambda model: {"optimizer": sgd_of(model)})
    before.train(batches(3))
    after = Trainee(group, lambda model: {"optimizer": sgd_of(model)}, fresh_optimizer=True)
    assert after.state.resume(handed_over(before.state.tree()))
    assert after.state.tree()["optimizers"][0]["state"]


@pytest.mark.parametrize(("then", "now"), [("off", "fp16"), ("fp16", "off")])
def test_mixed_precision_may_change_on_resume(group: Group, then: str, now: str) -> None:
    before, after = (Trainee(group, lambda model: {"optimizer": sgd_of(model)}, amp=amp) for amp in (then, now))
    before.train(batches(2))
    after.state.resume(handed_over(before.state.tree()))
    after.train(batches(1))


def test_a_schedule_and_a_scheduler_together_are_refused(group: Group) -> None:
    with pytest.raises(ConfigError, match="a schedule and a scheduler: give one of them"):
        Trainee(group, lambda model: {**with_scheduler(SCHEDULERS["StepLR"])(model), "schedule": lambda done: done})


def test_a_scheduler_of_another_optimizer_is_refused_by_name(group: Group) -> None:
    def build(model: nn.Module) -> dict[str, Any]:
        return {"optimizer": sgd_of(model), "scheduler": lr_scheduler.StepLR(sgd_of(model), 2)}

    with pytest.raises(ConfigError, match="scheduler, StepLR, is of another optimizer"):
        Trainee(group, build)


def test_a_scheduler_that_cannot_be_stored_is_refused_before_joining(group: Group) -> None:
    def scheduled(sgd: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        scheduler: Any = lr_scheduler.StepLR(sgd, 2)
        scheduler.watcher = print
        return scheduler  # type: ignore[no-any-return]

    with pytest.raises(ConfigError, match=re.escape("builtins.builtin_function_or_method at schedulers.0.watcher")):
        Trainee(group, with_scheduler(scheduled))


def test_a_scheduler_that_ends_before_training_ends_it_with_its_name(group: Group) -> None:
    trainee = Trainee(group, with_scheduler(lambda sgd: lr_scheduler.OneCycleLR(sgd, 0.5, total_steps=4)))
    trainee.train(batches(4))
    with pytest.raises(ConfigError, match="OneCycleLR: Tried to step 5 times"):
        trainee.train(batches(1))


def test_optimizers_that_share_a_parameter_are_refused(group: Group) -> None:
    with pytest.raises(ConfigError, match="two of the training's optimizers have the same parameter"):
        Trainee(group, lambda model: {"optimizer": [sgd_of(model), sgd_of(model)]})


def test_an_optimizer_that_needs_several_passes_is_refused_by_name(group: Group) -> None:
    with pytest.raises(ConfigError, match="LBFGS, which evaluates the loss several times"):
        Trainee(group, lambda model: {"optimizer": torch.optim.LBFGS(model.parameters())})
