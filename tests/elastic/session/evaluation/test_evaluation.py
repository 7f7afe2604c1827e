"""Every validation sample belongs to exactly one rank, wherever an evaluation continues; no module's mode changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from tests.elastic.alone import default_group_alone, form_alone, opened_alone, stepper_of
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.group import Group
from tidewater.elastic.observe.log import Log
from tidewater.elastic.script.content import Script
from tidewater.elastic.session.evaluation import ROUND, Evaluation, Seat
from tidewater.elastic.session.state import State
from tidewater.elastic.sharding import is_sharded
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


@given(total=st.integers(1, 700), size=st.integers(1, 3), shards=st.integers(1, 3))
def test_the_processes_that_divide_a_model_share_the_samples_of_their_rank(total: int, size: int, shards: int) -> None:
    seats = [Seat(rank, size, index, shards) for rank in range(size) for index in range(shards)]
    shares = [list(seat.shares(0, total)) for seat in seats]
    taken = [sample for together in zip(*shares, strict=True) for share in together for sample in share]
    assert taken == list(range(total))
    for seat, own in zip(seats, shares, strict=True):
        first = list(replace(seat, index=0).shares(0, total))
        assert all(len(mine) <= len(most) for mine, most in zip(own, first, strict=True))


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    yield from opened_alone()


def evaluation_of(group: Group, model: nn.Module, score: Any, **session: Any) -> tuple[Evaluation, State]:
    """Return the evaluation of the only worker, and the state after a step. ``session``: what a Session returns."""
    form_alone(group)
    stepper, state = stepper_of(group, model, None, torch.optim.SGD(model.parameters(), lr=0.1))
    state.step = 1
    worker: Any = SimpleNamespace(state=state, group=group, metrics=SimpleNamespace(evaluated=lambda seconds: None))
    training = SimpleNamespace(model=model, validation=[1, 2, 3], score=score, on_evaluation=ignore)
    loader = SimpleNamespace(validation=lambda parts: (torch.ones(len(part), 2) for part in parts))
    material: Any = SimpleNamespace(training=training, stepper=stepper, loader=loader)
    never = lambda: False  # noqa: E731
    answers = {"knows": never, "is_overdue": never, "check": lambda: None, "together": lambda call: call()}
    answers |= {"over_processes": lambda sums: list(sums), "decided": lambda value: value, **session}
    return Evaluation(cast("Any", SimpleNamespace(worker=worker, log=Log("a"), **answers)), material), state


def test_an_evaluation_leaves_each_module_in_the_mode_that_the_script_has_set(group: Group) -> None:
    model, seen = nn.Sequential(nn.BatchNorm1d(2).eval(), nn.Linear(2, 1)), list[bool]()

    def score(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        seen.extend(each.training for each in model.modules())
        found: torch.Tensor = model(batch).sum()
        return found

    evaluation, _ = evaluation_of(group, model, score)
    evaluation.begin(Seat(0, 1))
    evaluation.measure()
    assert evaluation.finish()
    assert seen == [False, False, False]
    assert [each.training for each in model.modules()] == [True, False, True]


def test_a_process_without_samples_makes_the_passes_of_its_worker_and_adds_nothing(group: Group) -> None:
    seen = list[int]()

    def score(model: nn.Module, batch: torch.Tensor) -> float:
        seen.append(len(batch))
        return 1000.0

    def over_processes(sums: Sequence[float]) -> list[float]:
        return [own + first for own, first in zip(sums, [6.0, 0.0], strict=True)]

    evaluation, state = evaluation_of(group, nn.Linear(2, 1), score, over_processes=over_processes)
    state.micro_batch = 1
    evaluation.begin(Seat(0, 1, index=1, shards=2))
    evaluation.measure()
    assert evaluation.finish()
    assert seen == [1, 1, 1]
    assert state.accuracy == 2.0


def test_processes_of_a_worker_that_add_other_sums_are_refused(group: Group) -> None:
    evaluation, state = evaluation_of(group, nn.Linear(2, 1), None, decided=lambda _: ["right", "count"])
    state.micro_batch = 2
    evaluation.begin(Seat(0, 1, index=1, shards=2))

    def validate() -> None:
        for batch, add in evaluation.validation(range(3)):
            add(count=len(batch), right=1.0)

    words = "the processes of this worker add other sums: this one count, right, and the first one right, count"
    with pytest.raises(ConfigError, match=words):
        validate()


@pytest.fixture
def default_group() -> Iterator[None]:
    yield from default_group_alone()


@pytest.mark.usefixtures("default_group")
def test_after_an_evaluation_a_divided_model_has_its_divided_parameters_again(group: Group) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    for layer in (model[0], model):
        fully_shard(layer)
    evaluation, _ = evaluation_of(group, model, lambda model, batch: float(model(batch).sum()))
    evaluation.begin(Seat(0, 1))
    evaluation.measure()
    assert evaluation.finish()
    assert all(map(is_sharded, model.parameters()))


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
