"""Each change of a state, and of what is none, changes a piece with a name that leads to it; nothing else does."""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tidewater.elastic.rehearsal.pieces import pieces, sketch, sketches
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.training import Training


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("mask", torch.full((2, 2), float("-inf")), persistent=False)
        self.calls = 0
        self.table = {"sizes": [1, 2]}


class Mean:
    """A stateful object that forgets its count."""

    def __init__(self) -> None:
        self.mean, self.count = torch.zeros(2), 0
        self.generator = torch.Generator().manual_seed(0)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = state["mean"]


class Script:
    """What a training function has built, and the variables around its functions."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model, self.mean, self.seen = Layer(), Mean(), {"best": 1.0, "teacher": nn.Linear(1, 1)}
        self.rng, self.noise = random.Random(0), np.random.default_rng(0)
        self.optimizer: Any = torch.optim.Adam(self.model.parameters())
        self.scheduler: Any = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        seen, rng, noise = self.seen, self.rng, self.noise

        def on_step(report: object) -> None:
            seen["best"] = rng.random() + noise.random()

        self.training = Training(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            dataset=TensorDataset(torch.zeros(1)),
            loss=lambda model, batch: batch,
            stateful={"mean": self.mean},
            on_step=on_step,
        )
        self.state = State(self.training, kind_of(self.model), torch.amp.GradScaler("cpu", enabled=False))
        self.model.linear(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()

    def pieces(self) -> dict[str, str]:
        return pieces(self.state, self.training)


@torch.no_grad()
def bit(script: Script) -> None:
    script.model.linear.weight[0, 0] += 2.0**-20


def mask(script: Script) -> None:
    script.model.mask = torch.zeros(2, 2)


def moment(script: Script) -> None:
    script.optimizer.state[script.model.linear.bias]["exp_avg"] += 1


def rate(script: Script) -> None:
    script.optimizer.param_groups[0]["lr"] = 0.5


class Average:
    """An average of the weights, in a variable of this module."""

    def __init__(self) -> None:
        self.weight = torch.ones(3)

    def __call__(self, *_: object) -> None:
        self.weight.mul_(0.9)


AVERAGE = Average()
HELPERS = types.ModuleType("helpers")
HELPERS.average, HELPERS.__file__ = Average(), __file__  # type: ignore[attr-defined]


def direct(*_: object) -> None:
    AVERAGE.weight.mul_(0.9)


def helper() -> None:
    direct()


@torch.no_grad()
def through_helpers(*_: object) -> None:
    helper()


def in_a_comprehension(*_: object) -> object:
    return [each.mul_(0.9) for each in [AVERAGE.weight] for _ in (AVERAGE,)]


def in_a_module(*_: object) -> None:
    HELPERS.average()


def with_argument(average: Average, *_: object) -> None:
    average()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        pytest.param(direct, "AVERAGE.weight", id="function"),
        pytest.param(AVERAGE, "Average.weight", id="callable-object"),
        pytest.param(AVERAGE.__call__, "Average.weight", id="method"),
        pytest.param(functools.partial(with_argument, AVERAGE), "argument 0.weight", id="partial"),
        pytest.param(functools.partial(with_argument, average=AVERAGE), "average.weight", id="partial-with-a-name"),
        pytest.param(functools.partial(direct, 1), "AVERAGE.weight", id="function-of-a-partial"),
        pytest.param(through_helpers, "AVERAGE.weight", id="two-helpers-below-a-decorator"),
        pytest.param(in_a_comprehension, "AVERAGE.weight", id="comprehension"),
        pytest.param(in_a_module, "HELPERS.average.weight", id="module-of-the-script"),
    ],
)
def test_what_a_function_refers_to_is_found(function: Any, name: str) -> None:
    script = Script()
    found = pieces(script.state, replace(script.training, on_step=function))
    assert found[f"variable/{name}"].startswith("float32[3] ")


@pytest.mark.parametrize("hook", ["on_step", "on_evaluation", "before_step", "schedule", "loss", "score", "collate"])
def test_all_functions_of_the_training_are_searched(hook: str) -> None:
    script, given = Script(), {hook: direct}
    assert "variable/AVERAGE.weight" in pieces(script.state, replace(script.training, **given))  # type: ignore[arg-type]


def test_functions_of_libraries_are_not_searched() -> None:
    def on_step(report: object) -> None:
        pieces(report, report)  # type: ignore[arg-type]
        functools.reduce(max, [1])
        torch.nn.functional.relu(torch.ones(1))

    script = Script()
    found = pieces(script.state, replace(script.training, on_step=on_step))
    assert not [name for name in found if name.startswith("variable/")]


CHANGES: dict[str, Callable[[Script], object]] = {
    "model/linear.weight": bit,
    "buffers/mask": mask,
    "optimizers/0/state/1/exp_avg": moment,
    "optimizers/0/param_groups/0/lr": rate,
    "schedulers/0/last_epoch": lambda script: setattr(script.scheduler, "last_epoch", 7),
    "stateful/mean/mean": lambda script: script.mean.mean.add_(1),
    "object/mean.count": lambda script: setattr(script.mean, "count", 1),
    "object/mean.generator": lambda script: torch.rand(1, generator=script.mean.generator),
    "mode/linear": lambda script: script.model.linear.eval(),
    "requires_grad/linear.bias": lambda script: script.model.linear.bias.requires_grad_(False),
    "attribute/calls": lambda script: setattr(script.model, "calls", 3),
    "attribute/table['sizes'][1]": lambda script: script.model.table.update(sizes=[1, 3]),
    "optimizer/0.noise": lambda script: setattr(script.optimizer, "noise", 0.1),
    "variable/seen['best']": lambda script: script.seen.update(best=0.5),
    "variable/seen['teacher']['bias']": lambda script: nn.init.ones_(script.seen["teacher"].bias),  # type: ignore[attr-defined]
    "variable/rng": lambda script: script.rng.random(),
    "variable/noise": lambda script: script.noise.random(),
}


@pytest.mark.parametrize("piece", CHANGES)
def test_a_change_is_seen_under_its_name_and_under_no_other(piece: str) -> None:
    script, other = Script(), Script()
    before = script.pieces()
    assert before == other.pieces()
    CHANGES[piece](script)
    now = script.pieces()
    assert {name for name in {**before, **now} if before.get(name) != now.get(name)} == {piece}


def test_the_distance_of_two_tensors_is_estimated_from_their_sketches() -> None:
    torch.manual_seed(0)
    one = torch.randn(300, 40)
    other = one + 0.01 * torch.randn(300, 40)
    mine, theirs = sketch(one), sketch(other)
    estimate = sum((a - b) ** 2 for a, b in zip(mine.sums, theirs.sums, strict=True)) ** 0.5
    assert float((one - other).norm()) / 2 < estimate < 2 * float((one - other).norm())
    assert mine.norm == pytest.approx(float(one.norm()))


@pytest.mark.parametrize("values", [[], [1.0, -2.0], [float("inf"), float("nan")]])
def test_a_tensor_of_few_numbers_is_its_own_sketch(values: list[float]) -> None:
    finite = [value if abs(value) < float("inf") else 0.0 for value in values]
    assert sorted(map(abs, sketch(torch.tensor(values)).sums))[-2:] == sorted(map(abs, [0.0, 0.0, *finite]))[-2:]


def test_whole_numbers_and_complex_ones_have_sketches_and_texts_have_none() -> None:
    script = Script()
    found = sketches(script.state)
    assert "optimizers/0/param_groups/0/lr" in found
    assert "optimizers/0/class" not in found
    assert sketch(torch.tensor([3])).epsilon == 0.0
    assert sketch(torch.tensor([3 + 4j])).norm == 5.0
