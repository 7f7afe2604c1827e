"""The processes of a worker make the same calls, and each call succeeds in all of them or fails in all of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import HashStore

from tests.elastic.sharded.threads import SIZE, at_once
from tidewater.contract import exit_codes
from tidewater.elastic.errors import ConfigError, Diverged, GroupBroken
from tidewater.elastic.group import mesh
from tidewater.elastic.group.replica import Parted, Replica
from tidewater.elastic.membership.rules import Generation, Member, View
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session import handover, session
from tidewater.elastic.session.state import Position
from tidewater.elastic.session.worker import Share
from tidewater.elastic.sharded.session import ShardedSession

ME, OTHER = (Member(name, name, "127.0.0.1", 10, "s", 0, shard_ports=(11, 12)) for name in "ab")
GENERATION = Generation(4, 77, (ME, OTHER), "start")
NEXT = Generation(5, 78, (ME, OTHER), "joined")


class Session(ShardedSession):
    """A session of worker a, in which this process fails in the step ``fails`` of a call."""

    def __init__(self, replica: Replica, fails: str = "", *, view: View | None = None) -> None:
        self.fails, self.done, self.broken = fails, list[str](), list[str]()
        coordinator = SimpleNamespace(
            view=view or View(GENERATION, 4, (ME, OTHER)),
            synced=lambda number: None,
            leave=lambda: None,
            wait=lambda condition, deadline: self.step("wait"),
            wait_for_news=lambda view, deadline: None,
        )
        group = SimpleNamespace(
            rank=0,
            tally=self._tally,
            confirm=lambda: self.step("sum"),
            form=lambda *_, **__: self.step("form"),
            interrupt=self.broken.append,
            waited_seconds=0.0,
        )
        model = nn.Linear(1, 1)
        state: Any = SimpleNamespace(present=True, runs=[], step=7, saved_tree=lambda: self.step("gather"))
        state.model, state.finite, state.history, state.score = model, {"weight"}, None, None
        state.position = lambda lineage: Position(1, 4, 8 + (fails == "state"), 1, 7, 0)
        worker: Any = SimpleNamespace(
            member_id="a",
            coordinator=coordinator,
            group=group,
            state=state,
            metrics=None,
            writes=not replica.index,
            checkpoints=SimpleNamespace(save=self._saved),
            heartbeat=SimpleNamespace(tense=lambda on: None),
            refusal=lambda view: None,
        )
        config: Any = SimpleNamespace(on_drift="mend", compare_every=0, begin_again=False)
        super().__init__(config, worker, Log("a"), replica)
        nothing: Any = SimpleNamespace(
            together=lambda: None, worked=lambda _: None, step=lambda *_: None, begin=lambda *_: None, loads=0
        )
        nothing.announce = lambda: None
        nothing.settle, nothing.adopt = (lambda *_, **__: self.done.append("settled")), None
        self.stragglers = self.reports = nothing
        fence: Any = SimpleNamespace(check=lambda generation: self.step("fence"))
        self._fence, self._generation = fence, GENERATION

    def _saved(self, *_: object, **__: object) -> bool:
        self.done.append("saved")
        return True

    def _tally(self, row: list[float]) -> list[float]:
        self.step("sum")
        return row

    def step(self, name: str) -> None:
        """Do a step of a call, or fail in it. A group that was interrupted makes no sum."""
        self.done.append(name)
        if name == self.fails or (name == "sum" and self.broken):
            raise GroupBroken(f"{name} fails")


def synchronise(worker: Any, generation: Any, rank: int, exchange: handover.Exchange, log: Log) -> bool:
    """Receive a state, and take it. Return whether its last step was reported: the first process alone knows that."""
    worker.group.tally([])
    exchange.agreed()
    worker.coordinator.wait(None, 0)
    exchange.joined([(1, 2)])
    return bool(worker.writes)


def summed(session: Session) -> Any:
    share: Any = SimpleNamespace(samples=(), ready=0.0, began=0.0, batch_size=1)
    checked: Share = share
    outcome: Any = SimpleNamespace(work_seconds=())

    def sums() -> Any:
        session.step("passes")
        session.step("sum")
        return outcome

    return session.summed(checked, sums)


CALLS: dict[str, tuple[Callable[[Session], Any], tuple[str, ...]]] = {
    "exchange": (lambda session: session.exchange([1.0]), ("sum", "fence")),
    "confirm": (lambda session: session.confirm(), ("sum", "fence")),
    "check": (lambda session: session.check(), ("fence",)),
    "together": (lambda session: session.together(lambda: session.step("sum")), ("sum",)),
    "summed": (summed, ("sum",)),
    "met": (lambda session: session._met(GENERATION), ("form", "sum", "wait", "fence", "state")),
}


@pytest.mark.parametrize(
    ("call", "fails"), [(call, fails) for call, (_, steps) in CALLS.items() for fails in ("", *steps)]
)
def test_a_call_succeeds_in_all_processes_or_fails_in_all(
    call: str, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "synchronise", synchronise)

    def do(replica: Replica) -> tuple[bool, float, bool]:
        session, parted = Session(replica, fails if replica.index == 1 else ""), False
        try:
            CALLS[call][0](session)
        except Parted:
            parted = True
        (count,) = replica.sum([1.0])  # they still make the same exchanges
        assert (session.done[-1:] == ["settled"]) is (not parted and call not in ("check", "together"))
        return parted, count, session.worker.state.present

    assert at_once(do) == [(bool(fails), SIZE, fails != "state")] * SIZE


def test_a_worker_that_others_have_replaced_makes_its_passes_and_no_sum() -> None:
    def do(replica: Replica) -> tuple[bool, list[str]]:
        session, parted = Session(replica, "" if replica.index else "fence"), False
        try:
            summed(session)
        except Parted:
            parted = True
        return parted, [name for name in session.done if name != "fence"]

    found = at_once(do)
    assert [parted for parted, _ in found] == [True] * SIZE
    assert [done[0] for _, done in found] == ["passes"] * SIZE
    assert all("settled" not in done for _, done in found)


def test_the_first_process_decides_which_generation_comes_next() -> None:
    def do(replica: Replica) -> tuple[Any, ...]:
        # Only the first one knows of the next generation when it is asked.
        session = Session(replica, view=None if replica.index else View(NEXT, 5, (ME, OTHER)))
        found = session._next_generation()
        assert found is not None
        return found.number, [member.address.port for member in found.members], session.done

    assert at_once(do) == [(5, [port, port], ["wait"]) for port in (10, 11, 12)]


def test_the_first_process_decides_that_the_worker_ends() -> None:
    over = View(GENERATION, 4, (ME, OTHER), finished='{"step": 7}')

    def do(replica: Replica) -> tuple[Any, int, list[str]]:
        session = Session(replica, view=None if replica.index else over)
        ending: Any = SimpleNamespace(finished=lambda: exit_codes.FINISHED)
        session.ending = ending
        return session._next_generation(), session.end(), session.done

    assert at_once(do) == [(None, exit_codes.FINISHED, ["wait"])] * SIZE


def test_all_processes_learn_at_the_same_place_that_the_worker_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    def do(replica: Replica) -> list[bool]:
        session = Session(replica)
        if not replica.index:
            session._leaving_since = -1e9
        found = [session.is_overdue()]
        session.confirm()
        return [*found, session.is_overdue()]

    assert at_once(do) == [[False, True]] * SIZE


@pytest.mark.parametrize("times", [0, 2])
def test_a_worker_leaves_with_the_code_of_its_first_process_and_all_give_their_parts_when_it_saves(times: int) -> None:
    def do(replica: Replica) -> tuple[int, list[str]]:
        session = Session(replica)

        def left(*_: object, settle: Callable[[], None]) -> int:
            assert all(session.ending.save(session.worker) for _ in range(times))
            settle()
            return exit_codes.LEFT

        ending: Any = SimpleNamespace(left=left)
        session.ending = ending
        return session.end(), session.done

    first, *others = at_once(do)
    assert first == (exit_codes.LEFT, [*["gather", "saved"] * times, "settled"])
    assert others == [(exit_codes.LEFT, [*["gather"] * times, "settled"])] * (SIZE - 1)


def test_a_process_that_ends_its_loop_alone_does_not_wait_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewater.contract.leaving.LAST_SECONDS", 0.2)
    store = HashStore()

    def alone(_: torch.Tensor) -> None:
        raise AssertionError("the other process is in its passes")

    def meet(place: str, seconds: float) -> None:
        mesh.meet(store, place, (0, 2), "a", seconds)

    words = (
        r"a\.1 did not come to the end of the script's loop in 0\.2 s, where a has waited: .* the same code .*\. "
        r"After run\.leave\(\), go on with the loop until it ends"
    )
    with pytest.raises(ConfigError, match=words):
        Session(Replica(0, 2, alone, meet)).end()


def test_a_process_that_loses_the_place_where_they_meet_at_the_end_starts_again() -> None:
    def meet(place: str, seconds: float) -> None:
        raise GroupBroken("the launcher of this worker's first machine is lost")

    with pytest.raises(GroupBroken, match="is lost"):
        Session(Replica(0, 2, lambda _: None, meet)).end()


def test_all_processes_meet_again_when_the_first_one_can_not_finish_the_job() -> None:
    def do(replica: Replica) -> tuple[bool, float, list[str]]:
        session, broken = Session(replica), False

        def finish(*_: object) -> None:
            session.ending.save(session.worker)
            raise GroupBroken("a peer is lost")

        ending: Any = SimpleNamespace(finish=finish)
        session.ending = ending
        try:
            session.finish()
        except GroupBroken:
            broken = True
        (count,) = replica.sum([1.0])
        return broken, count, session.done[session.done.index("settled") + 1 :]

    assert at_once(do) == [(True, SIZE, ["gather", "saved"]), *[(False, SIZE, ["gather"])] * (SIZE - 1)]


@pytest.mark.parametrize("call", ["finish", "end"])
def test_a_part_that_is_not_finite_is_no_part_of_a_last_checkpoint(call: str) -> None:
    def do(replica: Replica) -> str:
        session = Session(replica)
        gather: Any = lambda: replica.sum([1.0])  # noqa: E731 - all processes must take part
        session.worker.state.saved_tree = gather  # type: ignore[method-assign]
        ending: Any = SimpleNamespace()
        ending.finish = lambda *_: session.ending.save(session.worker)
        ending.left = lambda *_, settle: session.ending.save(session.worker) and exit_codes.LEFT
        session.ending = ending
        if replica.index == 1:
            next(session.worker.state.model.parameters()).data.fill_(math.inf)
        try:
            getattr(session, call)()
        finally:
            assert "saved" not in session.done
        return "no error"

    first, second, third = at_once(do)
    assert isinstance(second, Diverged)
    assert [type(each) for each in (first, third)] == [threading.BrokenBarrierError] * 2  # the launcher ends them


def test_a_worker_that_is_overdue_does_not_wait_for_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(worker: Any, generation: Any, rank: int, exchange: handover.Exchange, log: Log) -> None:
        exchange.wanted()
        worker.group.tally([])

    monkeypatch.setattr(handover, "synchronise", wait)
    monkeypatch.setattr(session, "still_wanted", lambda worker, generation, overdue: lambda: refuse(overdue()))

    def refuse(overdue: bool) -> None:
        if overdue:
            raise GroupBroken("this worker must leave")

    def do(replica: Replica) -> list[str]:
        session = Session(replica)
        session._leaving_since = -1e9
        with pytest.raises(Parted):
            session._met(GENERATION)
        return session.done

    assert at_once(do) == [["form"], *[["form", "sum", "fence"]] * (SIZE - 1)]


def test_no_process_takes_a_state_that_another_has_not_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "synchronise", synchronise)

    def do(replica: Replica) -> list[str]:
        session = Session(replica, "sum" if replica.index == 1 else "")
        with pytest.raises(Parted):
            session._met(GENERATION)
        return session.done

    assert at_once(do) == [["form", "sum"]] * SIZE
