"""The state goes over the group to all ranks that need it, and no rank that has it loses it when that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.checkpoint.conftest import LINE
from tests.elastic.group.broadcast.in_threads import Ranks, several
from tests.elastic.group.broadcast.test_broadcast import interrupt_at
from tests.elastic.group.kinds import KINDS
from tests.elastic.schedules.script import Average, Numbers
from tests.elastic.session.handover.test_handover import EXCHANGE, Etcd
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.errors import Damaged, GroupBroken
from tidewater.elastic.group import broadcast
from tidewater.elastic.membership.rules import Generation, Member
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.handover import synchronise
from tidewater.elastic.session.state import State
from tidewater.elastic.training import Report, Training

STEPS = 3
SOURCE, HOLDER, NEWCOMER, ANOTHER = range(4)
CHUNK = 256
LAST = Report(STEPS, 0, 1, 2, 0, 0.5, 0.1, (3,), 2, 0.01, 0.01)
"""The report of the last step, where it is not known to be final."""


class Model(nn.Module):
    """Has parameters of several types, one of them twice, and buffers that are persistent and that aren't."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(9, 9), nn.BatchNorm1d(9), nn.Linear(9, 9))
        self.tied = self.layers[0]
        self.coarse = nn.Linear(3, 3).half()
        self.register_buffer("mask", torch.rand(5), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(inputs)
        return result


def made(seed: int) -> State:
    """Return the state of a process that has just started."""
    model = Model(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
    training = Training(
        model, optimizer, Numbers(), lambda model, batch: batch[0], stateful={"average": Average(model)}
    )
    return State(training, "kind", torch.amp.GradScaler("cpu", enabled=False))


def trained(steps: int) -> State:
    """Return the state of a worker after that many steps. It is the same each time."""
    state = made(0)
    state.begin(LINE, 1)
    state.present = True
    model: Any = state.model
    for _ in range(steps):
        model(torch.ones(2, 9) * torch.arange(2.0)[:, None]).square().sum().backward()
        state.optimizers.step(1.0)
        state.model.zero_grad()
        state.advance(state.cursor, 1)
    return state


class Record(Etcd):
    def synced(self, number: int) -> None:
        pass


class Job:
    """Workers with these states, in one generation after the other."""

    def __init__(self, ranks: Ranks, states: list[State], folder: Path) -> None:
        self.ranks, self.states, self.number = ranks, states, 4
        self.log = Log("a", listener=lambda event, fields: None)
        self.checkpoints = Checkpoints(places(str(folder)), keep=3, log=self.log)
        self.reported: list[bool] = []
        """What it has returned on each rank, see ``synchronise``."""

    def meet(self) -> list[Exception | None]:
        """Form the group and bring all to one state. Return what each rank has raised."""
        self.number += 1
        uuid = self.ranks.form()
        members = tuple(
            Member(str(rank), str(rank), "127.0.0.1", server.port, "signature", 0)
            for rank, server in enumerate(self.ranks.servers)
        )
        generation = Generation(self.number, uuid, members, "joined", LINE)
        self.reported = [False] * len(members)

        def meet(rank: int) -> None:
            worker: Any = SimpleNamespace(
                group=self.ranks.groups[rank],
                state=self.states[rank],
                server=self.ranks.servers[rank],
                checkpoints=self.checkpoints,
                coordinator=Record(),
            )
            try:
                self.reported[rank] = synchronise(worker, generation, rank, EXCHANGE, self.log)
            except Exception as error:  # a process would end
                self.ranks.groups[rank].interrupt(str(error))
                raise

        return self.ranks.ends(meet)

    def assert_equal(self) -> None:
        assert len({state.digest() for state in self.states}) == 1
        assert all(state.present and not state.damaged for state in self.states)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "CHUNK", CHUNK)


@pytest.fixture(params=KINDS)
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    with several(request.param, 4) as ranks:
        yield ranks


@pytest.fixture
def four() -> Iterator[Ranks]:
    with several("reconfigured", 4) as ranks:
        yield ranks


def two_and_two() -> list[State]:
    """Return the states of two workers that train, and of two newcomers."""
    return [trained(STEPS), trained(STEPS), made(1), made(2)]


def places_of(state: State) -> list[int]:
    return [parameter.data_ptr() for parameter in state.model.parameters()]


def chunks(state: State) -> int:
    return broadcast.size_of(list(state.named_tensors().values())) // CHUNK + 1


def test_two_newcomers_get_the_state_into_their_own_tensors(ranks: Ranks, folder: Path) -> None:
    job = Job(ranks, two_and_two(), folder)
    before, digest = [places_of(state) for state in job.states], job.states[SOURCE].digest()
    assert job.meet() == [None] * 4
    job.assert_equal()
    assert job.states[ANOTHER].digest() == digest
    assert [places_of(state) for state in job.states] == before


@pytest.mark.parametrize("those", [[], [SOURCE], [HOLDER], [SOURCE, HOLDER]])
def test_all_learn_whether_any_of_them_has_reported_the_last_step(those: list[int], four: Ranks, folder: Path) -> None:
    job = Job(four, two_and_two(), folder)
    for rank in {SOURCE, HOLDER}.difference(those):
        job.states[rank].pending = LAST
    assert job.meet() == [None] * 4
    assert job.reported == [bool(those)] * 4


def test_of_a_checkpoint_nothing_is_reported_that_it_does_not_contain(four: Ranks, folder: Path) -> None:
    job, saved = Job(four, [made(rank) for rank in range(4)], folder), trained(STEPS)
    saved.pending = LAST
    assert job.checkpoints.save(saved.history, saved.tree(), wait=True)
    assert job.meet() == [None] * 4
    assert job.reported == [False] * 4
    assert {state.pending for state in job.states} == {replace(LAST, rank=-1, samples=())}


def test_parameters_and_moments_are_received_where_they_stay(
    four: Ranks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[int] = []
    run = broadcast.run

    def noted(group: Any, source: int, size: int, tensors: Any, *check: Any) -> None:
        run(group, source, size, tensors, *check)
        if group.rank == NEWCOMER:
            received.extend(tensor.data_ptr() for tensor in tensors)

    monkeypatch.setattr(broadcast, "run", noted)
    job = Job(four, two_and_two(), folder)
    assert job.meet() == [None] * 4
    (optimizer,) = job.states[NEWCOMER].optimizers._optimizers
    moments = [each for state in optimizer.state.values() for each in state.values()]
    assert moments
    assert {each.data_ptr() for each in moments} | set(places_of(job.states[NEWCOMER])) <= set(received)


def in_two_groups(first: torch.Tensor, second: torch.Tensor) -> State:
    """Return the state of a process that has just started, with these learning rates."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizer = torch.optim.AdamW(
        [{"params": layer.parameters(), "lr": rate} for layer, rate in zip(model, (first, second), strict=True)]
    )
    training = Training(model, optimizer, Numbers(), lambda *_: torch.zeros(()))
    return State(training, "kind", torch.amp.GradScaler("cpu"))


def test_two_learning_rates_stay_two_in_a_newcomer_that_has_one_tensor_for_both(folder: Path) -> None:
    source, rate = in_two_groups(torch.tensor(0.01), torch.tensor(0.001)), torch.tensor(0.01)
    source.begin(LINE, 1)
    source.present = True
    source.advance(source.cursor, 1)
    newcomer = in_two_groups(rate, rate)
    with several("reconfigured", 2) as pair:
        assert Job(pair, [source, newcomer], folder).meet() == [None] * 2
    assert [float(group["lr"]) for group in newcomer.optimizers.groups()] == pytest.approx([0.01, 0.001])


@pytest.mark.parametrize("lost", [SOURCE, HOLDER, NEWCOMER], ids=["source", "holder", "newcomer"])
def test_a_broadcast_that_breaks_at_any_chunk_costs_no_state_and_the_next_generation_begins_anew(
    ranks: Ranks, lost: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(ranks, two_and_two(), folder)
    digest = job.states[SOURCE].digest()
    last = chunks(job.states[SOURCE]) - 1
    for number in (0, 1, last // 2, last):
        job.states[NEWCOMER:] = [made(1), made(2)]
        with monkeypatch.context() as patch:
            interrupt_at(ranks.groups[lost], number, patch)
            assert all(isinstance(end, GroupBroken) for end in job.meet())
        assert [state.digest() for state in job.states[:NEWCOMER]] == [digest] * 2
        assert all(state.present and not state.damaged for state in job.states[:NEWCOMER])
        for state in job.states[NEWCOMER:]:  # one may have got all of it before another one was lost
            assert state.digest() == digest if state.present else state.step == 0
    assert job.meet() == [None] * 4
    job.assert_equal()
    assert job.states[ANOTHER].digest() == digest


def test_a_rank_that_is_behind_keeps_its_state_until_the_new_one_is_complete(
    four: Ranks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(four, [trained(STEPS), trained(STEPS - 1), made(1), made(2)], folder)
    behind = job.states[HOLDER].digest()
    with monkeypatch.context() as patch:
        interrupt_at(four.groups[SOURCE], chunks(job.states[SOURCE]) - 1, patch)
        job.meet()
    assert job.states[HOLDER].digest() == behind
    assert job.states[HOLDER].present
    assert job.meet() == [None] * 4
    job.assert_equal()


@pytest.fixture
def broken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], State]:
    """Return a function that returns a newcomer to which the state of a job after that many steps came only in part."""

    def broken(steps: int) -> State:
        with several("reconfigured", 2) as pair:
            job = Job(pair, [trained(steps), made(1)], folder)
            with monkeypatch.context() as patch:
                interrupt_at(pair.groups[1], 3, patch)  # with the source's, it may not have begun to receive
                job.meet()
        return job.states[1]

    return broken


def alone(state: State, folder: Path) -> Exception | None:
    """Return what the worker raises in a generation of its own."""
    with several("reconfigured", 1) as single:
        (end,) = Job(single, [state], folder).meet()
    return end


def test_a_newcomer_without_its_initial_values_does_not_begin_the_job_anew(
    broken: Callable[[int], State], folder: Path
) -> None:
    state = broken(STEPS)
    end = alone(state, folder)
    assert isinstance(end, Damaged)
    assert "start this worker again" in str(end)
    assert not state.present


def test_a_newcomer_without_its_initial_values_continues_from_a_checkpoint(
    broken: Callable[[int], State], folder: Path
) -> None:
    saved, state = trained(STEPS), broken(STEPS)
    checkpoints = Checkpoints(places(str(folder)), keep=3, log=Log("a", listener=lambda event, fields: None))
    assert checkpoints.save(saved.history, saved.tree(), wait=True)
    assert alone(state, folder) is None
    assert (state.step, state.damaged) == (STEPS, False)
    parameters = zip(state.model.parameters(), saved.model.parameters(), strict=True)
    assert all(torch.equal(mine, its) for mine, its in parameters)


def test_a_newcomer_to_a_job_without_a_step_keeps_its_initial_values_until_it_has_others(
    broken: Callable[[int], State], folder: Path
) -> None:
    state = broken(0)
    parameters = zip(state.model.parameters(), made(1).model.parameters(), strict=True)
    assert all(torch.equal(mine, initial) for mine, initial in parameters)
    assert alone(state, folder) is None
    assert state.present


def test_a_worker_that_differed_from_the_majority_keeps_its_state_until_it_has_theirs(
    four: Ranks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(four, [trained(STEPS) for _ in range(4)], folder)
    state, digest = job.states[NEWCOMER], job.states[SOURCE].digest()
    next(state.model.parameters()).detach()[0] += 1
    odd = state.digest()
    state.suspect = True
    with monkeypatch.context() as patch:
        interrupt_at(four.groups[SOURCE], 3, patch)
        job.meet()
    assert (state.digest(), state.present) == (odd, False)
    assert job.meet() == [None] * 4
    job.assert_equal()
    assert state.digest() == digest
