"""Every validation sample belongs to exactly one rank, wherever an evaluation continues; no module's mode changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from tests.elastic.alone import form_alone, opened_alone, stepper_of
from tidewater.elastic.config import Config
from tidewater.elastic.group.group import Group
from tidewater.elastic.observe.log import Log
from tidewater.elastic.script.content import Script
from tidewater.elastic.session.evaluation import ROUND, Evaluation, Seat
from tidewater.elastic.training import Training, ignore


@given(start=st.integers(0, 500), total=st.integers(1, 500), size=st.integers(1, 5))
def test_the_ranks_share_the_remaining_samples_in_an_equal_number_of_rounds(start: int, total: int, size: int) -> None:
    shares = [list(Seat(rank, size).shares(start, total)) for rank in range(size)]
    assert len({len(rounds) for rounds in shares}) == 1
    taken = [sample for together in zip(*shares, strict=True) for share in together for sample in share]
    assert taken == list(range(start, total))
    assert all(len(share) <= ROUND for rounds in shares for share in rounds)


def test_only_the_last_round_has_fewer_samples() -> None:
    assert [list(map(len, Seat(rank, 2).shares(0, 3 * ROUND + 1))) for rank in (0, 1)] == [[ROUND, ROUND], [ROUND, 1]]


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    yield from opened_alone()


def test_an_evaluation_leaves_each_module_in_the_mode_that_the_script_has_set(group: Group) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2).eval(), nn.Linear(2, 1))
    form_alone(group)
    stepper, state = stepper_of(group, model, None, torch.optim.SGD(model.parameters(), lr=0.1))
    state.step, seen = 1, list[bool]()

    def score(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        seen.extend(each.training for each in model.modules())
        found: torch.Tensor = model(batch).sum()
        return found

    worker: Any = SimpleNamespace(state=state, group=group, metrics=SimpleNamespace(evaluated=lambda seconds: None))
    training = SimpleNamespace(model=model, validation=[1, 2], score=score, on_evaluation=ignore)
    loader = SimpleNamespace(validation=lambda parts: iter([torch.ones(2, 2)]))
    material: Any = SimpleNamespace(training=training, stepper=stepper, loader=loader)
    never = lambda: False  # noqa: E731
    session: Any = SimpleNamespace(worker=worker, log=Log("a"), knows=never, is_overdue=never, check=lambda: None)
    session.together, session.decided = lambda call: call(), lambda value: value
    evaluation = Evaluation(session, material)
    evaluation.begin(Seat(0, 1))
    evaluation.measure()
    assert evaluation.finish()
    assert seen == [False, False, False]
    assert [each.training for each in model.modules()] == [True, False, True]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_training_begins_with_the_modes_that_the_script_has_set(mode: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2).eval(), nn.Linear(2, 1))
    model[1].train(mode == "train")
    model.training = mode == "train"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = Training(model, optimizer, TensorDataset(torch.zeros(1)), lambda model, batch: batch)
    config = Config.parse(["--job", "j", "--worker", "a", "--etcd", "x", "--checkpoints", str(tmp_path)], {})
    script = Script(lambda _: training)
    content = script.prepare(replace(config, threads=torch.get_num_threads()))
    script.close()
    assert [each.training for each in model.modules()] == [mode == "train", False, mode == "train"]
    assert ("eval mode" in str(content.about.get("model"))) == (mode == "eval")
