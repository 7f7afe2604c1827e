"""The machines of a worker start together, and the end of one process, or of a machine, is the end of all."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidewater.contract import exit_codes
from tidewater.elastic.launch import rules
from tidewater.elastic.launch.nodes import starts as module
from tidewater.elastic.launch.nodes.messages import End, Leave, Order, Start, Stop
from tidewater.elastic.launch.nodes.starts import Orders, Starts
from tidewater.elastic.launch.units import LAST_SECONDS, MOMENT_SECONDS

FINISHED, FAILED, USAGE, LEFT = exit_codes.FINISHED, exit_codes.FAILED, exit_codes.USAGE, exit_codes.LEFT
KILLED = exit_codes.KILLED


def quiet(*_: Any, **__: Any) -> None:
    """Log nothing."""


def running(machines: int = 2, limits: tuple[int, ...] = (0, 0)) -> Starts:
    """Return those of machines that have started at time 0."""
    starts = Starts(machines, quiet)
    orders: Orders = []
    for machine in range(machines):
        assert orders == []
        orders = starts.joined(machine, limits[machine] if machine < len(limits) else 0, 0.0)
    assert kinds(orders) == [(machine, Start) for machine in range(machines)]
    return starts


def kinds(orders: Orders) -> list[tuple[int, type[Order]]]:
    return [(machine, type(order)) for machine, order in orders]


def stopped(starts: Starts, now: float) -> Orders:
    """Let no process run any more on any machine."""
    return [order for machine in range(starts.machines) for order in starts.idle(machine, 0, now)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_all_machines_start_together_when_the_last_one_has_come(order: tuple[int, ...]) -> None:
    starts = Starts(3, quiet)
    *before, last = (starts.joined(machine, 0, 5.0) for machine in order)
    assert before == [[], []]
    assert kinds(last) == [(machine, Start) for machine in range(3)]
    assert len({order.meeting for _, order in last if isinstance(order, Start)}) == 1


def test_a_start_has_the_least_limit_that_a_machine_knows_and_a_meeting_of_its_own() -> None:
    starts = Starts(3, quiet)
    starts.joined(0, 0, 0.0)
    starts.joined(1, 8, 0.0)
    first = starts.joined(2, 4, 0.0)
    assert {order.limit for _, order in first if isinstance(order, Start)} == {4}
    starts.ended(1, FAILED, 1, 100.0)
    for machine in range(3):
        starts.idle(machine, 2 if machine == 1 else 4, 100.0)
    again = starts.turn(200.0)
    assert {order.limit for _, order in again if isinstance(order, Start)} == {2}
    assert again[0][1] != first[0][1]


@pytest.mark.parametrize(
    ("code", "seconds"), [(KILLED, 0.0), (USAGE, 0.0), (200, 0.0), (FAILED, MOMENT_SECONDS), (LEFT, LAST_SECONDS)]
)
@pytest.mark.parametrize("machine", [0, 1])
def test_the_end_of_a_process_ends_those_of_all_machines_in_the_time_that_one_launcher_gives(
    machine: int, code: int, seconds: float
) -> None:
    assert running().ended(machine, code, 3, 50.0) == [(0, Stop(seconds)), (1, Stop(seconds))]


def test_when_the_job_has_finished_the_others_end_by_themselves() -> None:
    starts = running()
    assert starts.ended(1, FINISHED, 1, 50.0) == [(0, Stop(None)), (1, Stop(None))]
    assert starts.idle(1, 0, 50.0) == []
    assert starts.idle(0, 0, 90.0) == [(0, End(FINISHED)), (1, End(FINISHED))]
    assert starts.result == FINISHED


@pytest.mark.parametrize(
    ("codes", "counts"),
    [
        ((FAILED, USAGE), USAGE),
        ((USAGE, FAILED), USAGE),
        ((FAILED, KILLED), KILLED),
        ((FINISHED, 3), 3),
        ((LEFT, FAILED), FAILED),
        ((KILLED, USAGE), KILLED),
    ],
)
def test_the_code_that_says_more_counts_whichever_machine_it_is_of(codes: tuple[int, int], counts: int) -> None:
    for machines in ((0, 1), (1, 0)):
        starts = running()
        starts._leaving = True
        for machine, code in zip(machines, codes, strict=True):
            starts.ended(machine, code, machine, 50.0)
        stopped(starts, 60.0)
        assert starts.result == counts


def test_they_start_again_after_the_pause_of_one_launcher_and_give_up_as_it_does() -> None:
    starts, now, pauses = running(), 0.0, []
    for _ in range(rules.MAX_QUICK_FAILURES - 1):
        now += 10.0
        starts.ended(1, 7, 1, now)
        assert stopped(starts, now) == []
        assert starts.turn(now) == []
        assert starts.wakes_at is not None
        pauses.append(starts.wakes_at - now)
        now = starts.wakes_at
        assert kinds(starts.turn(now)) == [(0, Start), (1, Start)]
    assert pauses == [2 * rules.BACK_OFF_SECONDS, 4 * rules.BACK_OFF_SECONDS]
    starts.ended(0, 7, 0, now + 10.0)
    assert stopped(starts, now + 10.0) == [(0, End(7)), (1, End(7))]


def test_wrong_settings_end_all_launchers_at_once() -> None:
    starts = running()
    starts.ended(1, USAGE, 1, 5.0)
    assert stopped(starts, 5.0) == [(0, End(USAGE)), (1, End(USAGE))]


def test_a_start_with_fewer_samples_is_no_failure_that_counts() -> None:
    starts = running()
    for attempt in range(5):
        starts.ended(1, FAILED, 1, attempt)
        assert starts.idle(0, 0, attempt) == starts.idle(1, 16 - attempt, attempt) == []
        assert kinds(starts.turn(attempt)) == [(0, Start), (1, Start)]
    assert starts.result is None


@pytest.mark.parametrize("machine", [0, 1])
def test_a_lost_machine_ends_the_processes_of_the_others_at_once_and_is_no_failure(machine: int) -> None:
    starts, other = running(), 1 - machine
    for now in range(10):
        assert starts.lost(machine, now) == [(other, Stop(0.0))]
        assert starts.ended(other, FAILED, 0, now) == [(other, Stop(0.0))]
        assert starts.absent == []
        assert starts.idle(other, 0, now) == []
        assert starts.absent == [f"machine {machine}"]
        assert starts.turn(now) == []
        assert kinds(starts.joined(machine, 0, now)) == [(0, Start), (1, Start)]
    assert starts.result is None


def test_a_process_that_has_seen_the_loss_of_a_machine_first_is_no_failure_either() -> None:
    starts = running()
    starts.ended(0, FAILED, 0, 5.0)
    assert starts.lost(1, 5.1) == [(0, Stop(0.0))]
    starts.idle(0, 0, 5.2)
    assert kinds(starts.joined(1, 0, 5.3)) == [(0, Start), (1, Start)]


def test_a_machine_that_is_lost_after_the_end_of_a_process_does_not_hide_its_code() -> None:
    starts = running()
    starts.ended(1, FINISHED, 1, 5.0)
    assert starts.lost(1, 6.0) == [(0, Stop(None))]
    assert starts.idle(0, 0, 7.0) == [(0, End(FINISHED))]


def test_a_machine_that_comes_again_before_its_end_was_seen_has_been_lost() -> None:
    starts = running()
    assert starts.joined(1, 0, 5.0) == [(0, Stop(0.0))]
    starts.idle(0, 0, 5.1)
    assert kinds(starts.turn(5.2)) == [(0, Start), (1, Start)]


def test_the_processes_of_all_machines_are_asked_to_leave_once_and_none_starts_again() -> None:
    starts = running()
    assert starts.leave() == [(0, Leave()), (1, Leave())]
    assert starts.leave() == []
    starts.ended(0, LEFT, 0, 5.0)
    assert stopped(starts, 6.0) == [(0, End(LEFT)), (1, End(LEFT))]


def test_machines_that_wait_leave_at_once() -> None:
    starts = Starts(2, quiet)
    starts.joined(0, 0, 0.0)
    assert starts.leave() == [(0, End(LEFT))]
    starts = running()
    starts.ended(0, 7, 0, 1.0)
    stopped(starts, 1.0)
    assert starts.leave() == [(0, End(LEFT)), (1, End(LEFT))]


def test_a_machine_that_is_lost_while_all_leave_ends_the_others_as_killed() -> None:
    starts = running()
    starts.leave()
    assert starts.lost(1, 5.0) == [(0, Stop(0.0))]
    assert starts.idle(0, 0, 5.1) == [(0, End(KILLED))]


def test_a_machine_that_comes_when_all_end_ends_too() -> None:
    starts = running()
    starts.lost(1, 1.0)
    starts.idle(0, 0, 1.0)
    starts.leave()
    assert starts.joined(1, 0, 1.0) == [(1, End(LEFT))]


def test_a_wait_for_machines_ends_after_an_hour() -> None:
    said: list[str] = []
    starts = Starts(3, lambda name, **fields: said.append(f"{name} {fields.get('reason')}"), names={1: "a-1"})
    starts.joined(0, 0, 0.0)
    assert starts.turn(module.MACHINES_SECONDS) == []
    assert starts.turn(module.MACHINES_SECONDS + 1) == [(0, End(exit_codes.UNCONNECTED))]
    assert said == ["worker_given_up a-1, machine 2 did not come in 3600 s"]


class Machines:
    """Machines that obey, and meet what chance gives. It checks what must hold at every moment."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.size = self.chance.choice([2, 3])
        self.starts = Starts(self.size, quiet)
        self.now = 0.0
        self.there: set[int] = set()
        self.run: set[int] = set()
        """The machines with processes that run."""
        self.kill_at: dict[int, float | None] = {}
        self.ended: set[int] = set()
        self.meetings: set[int] = set()
        self.ends: dict[int, int] = {}

    def carry(self, orders: Orders) -> None:
        for machine, order in orders:
            assert machine in self.there
            if isinstance(order, Start):
                assert machine not in self.run
                assert self.there == set(range(self.size))
                self.run.add(machine)
                self.meetings.add(order.meeting)
                self.kill_at[machine] = None
            elif isinstance(order, Stop):
                self.kill_at[machine] = None if order.seconds is None else self.now + order.seconds
            elif isinstance(order, End):
                assert not self.run
                self.ends[machine] = order.code
        assert len(self.run) in (0, self.size) or self.ended or len(self.there) < self.size

    def end(self, machine: int, code: int) -> None:
        """Let a process end, and those of its machine with it."""
        self.ended.add(machine)
        self.carry(self.starts.ended(machine, code, machine, self.now))
        if machine in self.run and self.chance.random() < 0.7:
            self.stop(machine)

    def stop(self, machine: int) -> None:
        self.run.discard(machine)
        self.ended.add(machine)
        self.carry(self.starts.idle(machine, self.chance.choice([0, 0, 4, 2]), self.now))
        if not self.run:
            self.ended.clear()

    def lose(self, machine: int) -> None:
        self.there.discard(machine)
        was = machine in self.run
        self.run.discard(machine)
        self.carry(self.starts.lost(machine, self.now))
        if was and self.run and not self.ended:
            assert all(self.kill_at[each] == self.now for each in self.run)
        if not self.run:
            self.ended.clear()

    def step(self) -> None:
        self.now += self.chance.choice([0.0, 0.1, 3.0, 70.0])
        for machine in sorted(self.run):
            at = self.kill_at[machine]
            if machine in self.run and at is not None and self.now >= at:
                self.stop(machine)
        if self.starts.result is not None:
            return
        what = self.chance.random()
        away = sorted(set(range(self.size)) - self.there)
        if self.run and what < 0.3:
            self.end(self.chance.choice(sorted(self.run)), self.chance.choice([FINISHED, FAILED, LEFT, KILLED, 7]))
        elif away and what < 0.7:
            machine = self.chance.choice(away)
            self.there.add(machine)
            self.carry(self.starts.joined(machine, 0, self.now))
        elif self.there and what > 0.9:
            self.lose(self.chance.choice(sorted(self.there)))
        elif what > 0.88:
            self.carry(self.starts.leave())
        self.carry(self.starts.turn(self.now))


@pytest.mark.parametrize("seed", range(300))
def test_whatever_happens_a_start_has_all_machines_and_all_end_with_one_code(seed: int) -> None:
    machines = Machines(seed)
    for _ in range(400):
        machines.step()
        if machines.starts.result is not None:
            break
    result = machines.starts.result
    assert result is not None
    assert machines.ends == dict.fromkeys(machines.there, result)
    assert machines.run == set()
