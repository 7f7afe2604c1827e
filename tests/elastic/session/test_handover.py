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

from tests.elastic.checkpoint.conftest import LINE
from tests.elastic.schedules.script import Numbers
from tidewater.elastic.addresses import Address
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.errors import ConfigError, Drifted, GroupBroken, RecordError
from tidewater.elastic.membership.rules import Generation, Member, View
from tidewater.elastic.observe.log import Log
from tidewater.elastic.peer import drift
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

    def __init__(self, *members: Member) -> None:
        self.view = View(ALONE, 7, members)

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


def test_a_member_that_also_leaves_does_not_wait_for_itself() -> None:
    await_leavers(Etcd(replace(A, leaving=True)), lambda: pytest.fail("nobody is waited for"))


def test_waiting_for_a_leaving_worker_ends_with_the_generation() -> None:
    def superseded() -> None:
        raise GroupBroken("a newer generation came up")

    with pytest.raises(GroupBroken):
        await_leavers(Etcd(A, replace(B, leaving=True)), superseded)


EXCHANGE = Exchange(lambda: None, lambda tree, load: load(tree), "mend", 10)


def restore(state: State, checkpoints: Checkpoints, number: int, quiet: Log) -> None:
    """Restore the state in that generation, as the only rank."""
    generation = replace(ALONE, number=number, lineage=LINE)
    worker: Any = SimpleNamespace(coordinator=Etcd(A), state=state, checkpoints=checkpoints)
    _restore(worker, generation, EXCHANGE, quiet)


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

    def tally(self, values: list[float]) -> list[float]:
        if not self._tables:
            raise GroupBroken("a peer is lost")
        theirs = [number for row in self._tables.pop(0) for number in row]
        return [*theirs, *values[len(theirs) :]]

    def confirm(self, *, timeout_seconds: float = 0.0) -> None:
        self.confirmed += 1


C = Member("c", "c", "127.0.0.1", 1, "signature", 0)
THREE = Generation(6, 9, (A, B, C), "lost")
AFTER_100 = [1.0, 4.0, 101.0, 1.0, 0.0, 0.0]
LEFT_BEHIND = [1.0, 4.0, 101.0, 0.0, 0.0, 0.0]
"""The same state, of a rank that missed a generation."""


class Suspecting:
    """The third of three ranks, which suspects that the states differ; the others' checksums are given."""

    def __init__(self, *others: int, here: int, stale: int | None = None) -> None:
        self.group = Ranks(
            [[*(LEFT_BEHIND if rank == stale else AFTER_100), 0.0] for rank in range(len(others))],
            [[float(number) for number in divmod(each, 2**32)] for each in others],
        )
        value = torch.tensor([float(here)], dtype=torch.float64)
        self.state = SimpleNamespace(
            position=lambda lineage: at(4, 101, 1),
            suspect=True,
            present=True,
            step=100,
            micro_batch=0,
            tensors=lambda: [value],
            load=None,
        )
        self.events: list[tuple[str, object]] = []
        self.synced: list[int] = []
        self.worker: Any = SimpleNamespace(
            group=self.group,
            state=self.state,
            checkpoints=SimpleNamespace(before=lambda step: 80 if step >= 80 else 0),
            coordinator=SimpleNamespace(synced=self.synced.append),
            server=SimpleNamespace(withdraw=lambda: None, identity=None),
        )

    def synchronise(self, monkeypatch: pytest.MonkeyPatch, policy: str) -> list[str]:
        """Return the hosts from which a state was fetched."""
        fetched: list[str] = []

        def fetch(identity: object, address: Address, *_: object) -> dict[str, Any]:
            fetched.append(address.host)
            return {}

        def adopt(*_: object) -> None:
            self.state.present = True

        monkeypatch.setattr("tidewater.elastic.session.handover.server.fetch", fetch)
        log = Log("c", listener=lambda name, fields: self.events.append((name, fields.get("workers"))))
        members = (A, B, C) if len(self.group._tables[0]) == 2 else (A, C)
        generation = replace(THREE, members=members)
        synchronise(self.worker, generation, len(members) - 1, Exchange(lambda: None, adopt, policy, 10), log)
        return fetched


def sum_of(value: int) -> int:
    """Return the checksum of a state of that one number."""
    return int(drift.checksum([torch.tensor([float(value)], dtype=torch.float64)], Ranks.device)) % 2**64


def test_a_rank_that_differs_from_the_majority_gets_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    third = Suspecting(sum_of(5), sum_of(5), here=6)
    assert third.synchronise(monkeypatch, "mend") == [A.host]
    assert ("drifted", "c") in third.events
    assert third.synced == [0], "it must not pass for a member that has the state"
    assert not third.state.suspect


def test_a_rank_that_missed_a_generation_has_a_vote_if_its_state_is_as_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood still for a moment after the comparison. Without its vote the other two would have no majority."""
    third = Suspecting(sum_of(5), sum_of(5), here=6, stale=1)
    assert third.synchronise(monkeypatch, "mend") == [A.host]
    assert ("drifted", "c") in third.events


def test_of_two_that_differ_both_are_named_although_one_missed_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    second = Suspecting(sum_of(5), here=6, stale=0)
    with pytest.raises(Drifted, match="the states of a, c differ, and no majority"):
        second.synchronise(monkeypatch, "mend")


def test_all_ranks_compare_again_if_the_exchange_of_the_checksums_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that was interrupted before it saw the difference learns of it here; those that saw it may be lost now."""
    third = Suspecting(sum_of(5), sum_of(5), here=5)
    third.state.suspect = False
    third.group._tables = [[[*AFTER_100, 1.0], [*AFTER_100, 0.0]]]
    with pytest.raises(GroupBroken):
        third.synchronise(monkeypatch, "mend")
    assert third.state.suspect


def test_ranks_that_are_equal_after_all_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    third = Suspecting(sum_of(5), sum_of(5), here=5)
    assert third.synchronise(monkeypatch, "stop") == []
    assert third.events == []
    assert not third.state.suspect


@pytest.mark.parametrize(
    ("others", "policy", "says"),
    [
        ((5, 5), "stop", "the state of c differs from that of the other workers.*checkpoint before is that of step 80"),
        ((5, 7), "mend", "the states of a, b, c differ, and no majority"),
        ((5,), "mend", "the states of a, c differ, and no majority"),
    ],
    ids=["policy", "three differ", "two differ"],
)
def test_all_ranks_stop_together_where_nobody_may_or_can_be_mended(
    monkeypatch: pytest.MonkeyPatch, others: tuple[int, ...], policy: str, says: str
) -> None:
    third = Suspecting(*map(sum_of, others), here=6)
    with pytest.raises(Drifted, match=says):
        third.synchronise(monkeypatch, policy)
    assert third.group.confirmed == 1, "no rank may end before all know why"


def test_a_state_that_differed_from_the_majority_is_never_continued() -> None:
    state = SimpleNamespace(position=lambda lineage: NOBODY, suspect=False, present=False, step=100, micro_batch=0)
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
