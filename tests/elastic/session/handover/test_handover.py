"""Which rank's state is used at the start of a generation, and which members are waited for if no rank has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.checkpoint.conftest import LINE, Told
from tests.elastic.schedules.script import Numbers
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.errors import ConfigError, Drifted, GroupBroken, RecordError, StoreError
from tidewater.elastic.membership.rules import Generation, Member, Saved, View
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.handover import Exchange, _await_leavers, _restore, plan, synchronise
from tidewater.elastic.session.state import Position, State
from tidewater.elastic.training import Training

at = partial(Position, 1)
"""A position in the lineage that etcd knows."""
NOBODY = Position()
A, B = (Member(name, name, "127.0.0.1", 1, "signature", 0) for name in "ab")
ALONE = Generation(5, 9, (A,), "left")


def test_a_newcomer_gets_the_state_of_the_survivors() -> None:
    assert plan([at(4, 100, 1), at(4, 100, 1), NOBODY]) == (0, frozenset({2}))


def test_a_rank_that_missed_the_last_step_gets_the_state_of_a_rank_that_applied_it() -> None:
    assert plan([at(4, 100, 1), at(4, 101, 1), at(4, 100, 1)]) == (1, frozenset({0, 2}))


def test_the_survivors_step_replaces_a_step_that_only_a_disconnected_worker_applied() -> None:
    """Rank 1 applied step 101 in generation 4 and was left behind; rank 0 repeated it in generation 5."""
    assert plan([at(5, 101, 1), at(4, 101, 0)]) == (0, frozenset({1}))
    assert plan([at(5, 101, 1), at(4, 102, 0)]) == (0, frozenset({1}))


def test_if_no_rank_has_a_state_rank_0_loads_one_and_all_others_get_it() -> None:
    assert plan([NOBODY, NOBODY, NOBODY]) == (0, frozenset({1, 2}))


def test_equal_states_are_not_transferred() -> None:
    assert plan([at(4, 100, 1), at(4, 100, 1)]) == (0, frozenset())


def test_a_state_left_behind_is_compared_with_the_checkpoint_before_it_is_transferred() -> None:
    """Two ranks left behind have equal states. The first may find a newer checkpoint, so the second gets it too."""
    assert plan([at(4, 100, 0), at(4, 100, 0)]) == (0, frozenset({1}))


def test_of_equal_states_the_source_is_one_that_was_not_left_behind() -> None:
    assert plan([at(4, 100, 0), at(4, 100, 1)]) == (1, frozenset({0}))


def test_a_rank_without_the_result_of_an_evaluation_gets_it() -> None:
    assert plan([at(4, 100, 1, evaluated=2), at(4, 100, 1, evaluated=3)]) == (1, frozenset({0}))


def test_a_state_that_was_not_left_behind_has_priority_over_an_evaluation() -> None:
    assert plan([at(4, 100, 0, evaluated=3), at(4, 100, 1, evaluated=2)]) == (1, frozenset({0}))


def test_a_state_of_the_lineage_that_etcd_lost_does_not_replace_that_of_the_new_one() -> None:
    assert plan([Position(0, 7, 100, 1), at(1, 81, 1)]) == (1, frozenset({0}))


def test_workers_that_still_have_the_state_when_etcd_lost_its_data_keep_it() -> None:
    assert plan([Position(0, 7, 100, 1), Position(0, 7, 100, 1), NOBODY]) == (0, frozenset({2}))


class Etcd:
    """What a coordinator knows about one generation and some members."""

    def __init__(self, *members: Member, saved: Saved | None = None) -> None:
        self.view = View(ALONE, 7, members, saved)
        self.follower = SimpleNamespace()

    def saved(self, step: int, where: str) -> None:
        self.view = replace(self.view, saved=Saved(step, where))

    def wait(self, condition: Callable[[View], bool], deadline: float) -> bool:
        return condition(self.view)


def await_leavers(etcd: Etcd, wanted: Callable[[], None]) -> None:
    worker: Any = SimpleNamespace(coordinator=etcd)
    _await_leavers(worker, ALONE, wanted)


def test_a_leaving_worker_is_waited_for_because_it_may_be_saving_the_latest_state() -> None:
    etcd = Etcd(A, replace(B, leaving=True))
    asked = []

    def wanted() -> None:
        asked.append(etcd.view)
        etcd.view = View(ALONE, 7, (A,))

    await_leavers(etcd, wanted)
    assert len(asked) == 1


def test_in_a_large_job_a_worker_that_follows_no_other_asks_etcd_who_leaves() -> None:
    etcd = Etcd(A)
    etcd.view = replace(etcd.view, whole=False)
    answers: list[Any] = [[A, replace(B, leaving=True)], StoreError("no leader"), [A]]

    def everyone() -> list[Member]:
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        found: list[Member] = answer
        return found

    etcd.follower = SimpleNamespace(everyone=everyone)
    await_leavers(etcd, lambda: None)
    assert answers == []


def test_a_member_that_also_leaves_does_not_wait_for_itself() -> None:
    await_leavers(Etcd(replace(A, leaving=True)), lambda: pytest.fail("nobody is waited for"))


def test_waiting_for_a_leaving_worker_ends_with_the_generation() -> None:
    def superseded() -> None:
        raise GroupBroken("a newer generation came up")

    with pytest.raises(GroupBroken):
        await_leavers(Etcd(A, replace(B, leaving=True)), superseded)


EXCHANGE = Exchange(lambda: None, lambda tree, load: load(tree), "mend", 10)


def restore(
    state: State,
    checkpoints: Checkpoints,
    number: int,
    quiet: Log,
    *,
    saved: Saved | None = None,
    begin_again: bool = False,
) -> Saved | None:
    """Restore the state in that generation, as the only rank. Return what etcd knows of checkpoints after that."""
    generation, etcd = replace(ALONE, number=number, lineage=LINE), Etcd(A, saved=saved)
    worker: Any = SimpleNamespace(coordinator=etcd, state=state, checkpoints=checkpoints)
    _restore(worker, generation, replace(EXCHANGE, begin_again=begin_again), quiet)
    return etcd.view.saved


def trained_to(step: int, generation: int, **stateful: Any) -> State:
    """Return the state of a worker that was left behind after that step and generation."""
    state = fresh(**stateful)
    state.begin(LINE, 1)
    state.present, state.stale = True, True
    state.step, state.applied_in = step, generation
    return state


def fresh(**stateful: Any) -> State:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = Training(model, optimizer, Numbers(), lambda model, batch: batch, stateful=stateful)
    return State(training, "kind", torch.amp.GradScaler("cpu", enabled=False))


@pytest.fixture
def checkpoints(tmp_path: Path, quiet: Log) -> Checkpoints:
    return Checkpoints(places(str(tmp_path)), keep=3, log=quiet)


def save(checkpoints: Checkpoints, state: State) -> None:
    assert checkpoints.save(state.history, state.tree(), wait=True)


SAVED = Saved(90, "/data/checkpoints")


@pytest.mark.parametrize(("number", "said"), [(1, 0), (7, 1)], ids=["new-job", "job-without-a-checkpoint"])
def test_a_cold_start_without_a_checkpoint_is_said_if_etcd_knows_of_earlier_generations(
    checkpoints: Checkpoints, told: Told, number: int, said: int
) -> None:
    for known in (None, Saved(0, "")):
        restore(fresh(), checkpoints, number, told.log, saved=known)
    reasons = [str(event["reason"]) for event in told.of("begins_again")]
    assert len(reasons) == 2 * said
    assert all("no checkpoint was written" in reason for reason in reasons)


def test_a_cold_start_that_would_lose_a_checkpoint_is_refused_with_the_remedy(
    checkpoints: Checkpoints, told: Told, tmp_path: Path
) -> None:
    named = rf"checkpoint of step 90 in /data/checkpoints, and --checkpoints is {tmp_path}, .*--begin-again"
    with pytest.raises(ConfigError, match=named):
        restore(fresh(), checkpoints, 7, told.log, saved=SAVED)
    assert told.of("begins_again") == []


def test_a_job_begins_again_at_step_0_if_that_is_wanted_and_then_has_no_checkpoint_to_lose(
    checkpoints: Checkpoints, told: Told
) -> None:
    state = fresh()
    assert restore(state, checkpoints, 7, told.log, saved=SAVED, begin_again=True) == Saved(0, "")
    assert (state.present, state.step) == (True, 0)
    assert len(told.of("begins_again")) == 1


def test_the_wish_to_begin_again_removes_no_progress(checkpoints: Checkpoints, told: Told) -> None:
    save(checkpoints, trained_to(90, 5))
    state = fresh()
    assert restore(state, checkpoints, 7, told.log, saved=SAVED, begin_again=True) == SAVED
    assert state.step == 90


def test_a_cold_start_from_an_older_checkpoint_than_etcd_knows_is_reported(
    checkpoints: Checkpoints, told: Told, tmp_path: Path
) -> None:
    save(checkpoints, trained_to(20, 3))
    state = fresh()
    assert restore(state, checkpoints, 7, told.log, saved=SAVED) == SAVED
    assert state.step == 20
    (event,) = told.of("checkpoint_missing")
    assert event.items() >= {"step": 90, "place": "/data/checkpoints", "continues_after": 20}.items()
    assert f"--checkpoints is {tmp_path}, which does not have it" in str(event["reason"])


@pytest.mark.parametrize("known", [Saved(90, "/data"), Saved(20, "/data"), None], ids=["newest", "older", "none"])
def test_nothing_is_missing_where_the_places_have_what_etcd_knows(
    known: Saved | None, checkpoints: Checkpoints, told: Told
) -> None:
    """The one of step 90 was written by a worker that was cut off, and counts less."""
    save(checkpoints, trained_to(90, 3))
    save(checkpoints, trained_to(30, 5))
    state = fresh()
    restore(state, checkpoints, 7, told.log, saved=known)
    assert (state.step, told.of("checkpoint_missing")) == (30, [])


def test_a_state_left_behind_is_replaced_by_a_checkpoint_of_a_newer_generation(
    checkpoints: Checkpoints, quiet: Log
) -> None:
    save(checkpoints, trained_to(90, 6))
    state = trained_to(100, 5)
    restore(state, checkpoints, 7, quiet)
    assert (state.step, state.applied_in) == (90, 7)


def test_a_state_left_behind_stays_if_no_checkpoint_is_newer(checkpoints: Checkpoints, quiet: Log) -> None:
    save(checkpoints, trained_to(90, 5))
    state = trained_to(100, 5)
    restore(state, checkpoints, 7, quiet)
    assert (state.step, state.applied_in, state.stale) == (100, 7, False)


def test_a_restored_state_builds_on_its_checkpoint_and_on_nothing_saved_after_that(
    checkpoints: Checkpoints, quiet: Log
) -> None:
    before = trained_to(80, 4)
    save(checkpoints, before)
    state = fresh()
    restore(state, checkpoints, 6, quiet)
    assert state.history.contains(before.history)
    assert not state.history.contains(trained_to(81, 5).history)


def test_an_etcd_with_older_data_than_the_checkpoints_is_refused(checkpoints: Checkpoints, quiet: Log) -> None:
    save(checkpoints, trained_to(90, 9))
    with pytest.raises(RecordError, match="generation 9, but etcd is only at generation 6"):
        restore(fresh(), checkpoints, 6, quiet)


class Ranks:
    """A group in which the other ranks send prepared rows, one table after the other."""

    device = torch.device("cpu")

    def __init__(self, *tables: list[list[float]]) -> None:
        self._tables = list(tables)
        self.confirmed = 0

    def tally(self, values: list[float], *, timeout_seconds: float = 0.0) -> list[float]:
        if timeout_seconds:  # all wait for the outline of the state
            return values
        if not self._tables:
            raise GroupBroken("a peer is lost")
        theirs = [number for row in self._tables.pop(0) for number in row]
        return [*theirs, *values[len(theirs) :]]

    def confirm(self, *, timeout_seconds: float = 0.0) -> None:
        self.confirmed += 1


def test_a_state_that_differed_from_the_majority_is_never_continued() -> None:
    nothing = {"suspect": False, "present": False, "pending": None, "micro_batch": 0}
    state = SimpleNamespace(position=lambda lineage: NOBODY, step=100, **nothing)
    worker: Any = SimpleNamespace(
        group=Ranks([]),
        state=state,
        checkpoints=SimpleNamespace(load=lambda lineage: None),
        coordinator=Etcd(A),
    )
    with pytest.raises(Drifted, match="there is no checkpoint"):
        synchronise(worker, ALONE, 0, EXCHANGE, Log("a"))


class Late:
    """A stateful object of a script, in which a value appears that can't be stored."""

    def __init__(self) -> None:
        self.seen: Any = 0

    def state_dict(self) -> dict[str, Any]:
        if isinstance(self.seen, Exception):
            raise self.seen
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def test_an_object_that_cannot_take_its_state_from_a_checkpoint_ends_the_worker_with_a_sentence(
    checkpoints: Checkpoints, quiet: Log
) -> None:
    save(checkpoints, trained_to(90, 5, late=Late()))
    late = Late()
    late.load_state_dict = lambda state: state["gone"]  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=r"of the training's stateful\['late'\] raises KeyError: 'gone'"):
        restore(fresh(late=late), checkpoints, 6, quiet)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(torch.AcceleratorError("device-side assert"), id="gpu"),
        pytest.param(RuntimeError("DefaultCPUAllocator: can't allocate memory"), id="memory"),
    ],
)
def test_an_error_of_the_machine_is_not_taken_for_one_of_an_object_that_takes_its_state(error: Exception) -> None:
    def fail(state: dict[str, Any]) -> None:
        raise error

    late, state = Late(), trained_to(90, 5, late=Late()).tree()
    late.load_state_dict = fail  # type: ignore[method-assign]
    with pytest.raises(type(error)) as raised:
        fresh(late=late).load(state)
    assert raised.value is error
