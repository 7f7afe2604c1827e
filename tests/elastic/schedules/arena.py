"""A long-lived job on which schedules are run one after the other, with checks after each.

arena = Arena(farm, folder, etcd, group="nccl", own_loops=True)        # a kind of ``kinds.KINDS``
arena.play(schedule(17))          # raises AssertionError
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.elastic.schedules.forked import Forked, Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.plan import Move, Schedule, schedule
from tests.elastic.schedules.points import CHECKPOINT, STRIKES, arm, disarm, was_hit
from tests.elastic.schedules.script import BATCH_SIZE, TOTAL
from tests.elastic.session.evaluation.held_out import Keys
from tests.farm import Farm
from tidewater.contract import exit_codes

COMMON = (
    *("--batch-size", str(BATCH_SIZE), "--epochs", "100000", "--evaluate-every", "1"),
    *("--checkpoint-every", "10", "--data-workers", "0"),
)
_PACE = ("--min-step-seconds", "0.02", "--lease-seconds", "3", "--heartbeat-seconds", "1")
_HIT_SECONDS = 10.0
"""For a victim to reach its moment: a joiner first becomes a member, and may have to outlast a frozen worker."""
_OF_ONE = (*CHECKPOINT, "offer")
"""Moments of one worker only, mostly rank 0: it saves and offers the state. The workers decide which one."""
_OWN_LOOPS = ("tensor", "function", "sums")
_SETTLE_SECONDS = 90.0
BOUND_SECONDS = 20.0
"""No survivor stands still for longer, whatever comes together; see the docs for the bounds of single faults.

Most of it is for a slow machine. A survivor that doesn't notice a fault waits for longer: 20 s for a group to form, or
30 s in a step, and then for what follows.
"""

MOST_CHANGES = 3.0
"""Generations for each kill, freeze, thaw, join and leave, on average over the schedules: more would be a membership
that doesn't settle."""
_MOST_CHANGES_AT_ONCE = 6.0
"""The same in one schedule: when the machine stands still for a second, workers give each other up and return."""


@dataclass(frozen=True)
class Aim:
    """A fault that was planned for a named moment."""

    point: str
    hit: bool
    """The victim reached the moment; otherwise it was struck wherever it was."""


class Arena:
    """Keeps a job running from schedule to schedule."""

    kind_of_job = Job

    def __init__(
        self, farm: Farm, folder: Path, etcd: str, group: str, *, own_loops: bool = False, inner_steps: int = 0
    ) -> None:
        """With ``own_loops``, the workers train and validate in loops of their own, of each kind in turn."""
        self.group, self.own_loops = group, own_loops
        self.job = self.kind_of_job(farm, folder, etcd, *COMMON, *_PACE, group=group, inner_steps=inner_steps)
        self.pauses: list[float] = []
        """The longest pause of a survivor in each schedule."""
        self.changes: list[float] = []
        """How many generations each schedule took for each thing that happened."""
        self.aims: list[Aim] = []
        """Every strike at a named moment, in all schedules."""

    def play(self, schedule: Schedule) -> None:
        """Scale the job to the schedule's size, run the schedule, and check the invariants."""
        self._bring_to(schedule.size)
        round_ = _Round(self, self._anchor(schedule))
        for move in schedule.moves:
            round_.make(move)
        round_.settle()
        self.aims += round_.aims
        self.job.wait_for_all(_SETTLE_SECONDS)
        self._check(round_)

    def enlist(self, armed: dict[str, str] | None = None) -> Forked:
        """Start another worker."""
        count = len(self.job.workers)
        own_loop = _OWN_LOOPS[count % len(_OWN_LOOPS)] if self.own_loops else ""
        return self.job.start("w", *self.flags(count), armed=armed or {}, own_loop=own_loop)

    def flags(self, number: int) -> tuple[str, ...]:
        """Return the flags of a worker. Every fourth one prepares its batches, some ahead, in a separate process."""
        return ("--data-workers", str(int(number % 4 == 3)))

    def _anchor(self, schedule: Schedule) -> Forked:
        """Return the worker that is never hit. Not rank 0, if what only that one does is to be struck."""
        able = self._present()
        if len(able) > 1 and any(move.point in _OF_ONE for move in schedule.moves):
            able = [worker for worker in able if self.job.book.last[worker.name].rank]
        return able[schedule.anchor % len(able)]

    def _present(self) -> list[Forked]:
        return [worker for worker in self.job.living if not worker.leaving]

    def _bring_to(self, size: int) -> None:
        extra = self._present()[size:]
        for worker in extra:
            worker.signal(signal.SIGTERM)
        for _ in range(size - len(self._present())):
            self.enlist()
        for worker in extra:
            worker.wait(_SETTLE_SECONDS)
        self.job.wait_for_all(_SETTLE_SECONDS)

    def _check(self, round_: _Round) -> None:
        job = self.job
        job.book.refresh()
        for worker in job.workers:
            assert worker.poll() in _expected(worker), f"{worker.name}: {worker.poll()}\n{worker.text()[-4000:]}"
        problems = [*verdict(job.book, TOTAL), *_misjudged(job.workers)]
        assert not problems, "\n".join([*problems, job.told()])
        finals = [job.book.last[worker.name] for worker in job.living]
        common = min(final.step for final in finals)
        digests = {worker.name: job.book.finals[common][worker.name].digest for worker in job.living}
        assert len(set(digests.values())) == 1, f"after step {common}: {digests}"
        assert all(digests.values()), f"the state had moved on when step {common} was reported: {digests}"
        self.changes.append((max(final.generation for final in finals) - round_.generation) / round_.happened)
        assert self.changes[-1] <= _MOST_CHANGES_AT_ONCE, f"the membership flaps:\n{job.told()}"
        self.pauses.append(self._longest_pause(round_))
        assert self.pauses[-1] <= BOUND_SECONDS, f"a survivor stood still for {self.pauses[-1]:.1f} s:\n{job.told()}"

    def _longest_pause(self, round_: _Round) -> float:
        name, book = round_.anchor.name, self.job.book
        times = [book.finals[step][name].at for step in sorted(book.finals) if name in book.finals[step]]
        times = [at for at in times if at >= round_.began]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


class Ring:
    """The current arena. There is a new one after a failure, for another kind of group, and for the other of script.

    Args:
        make: Makes an arena for a kind of group, and for loops of the workers' own or not.
    """

    def __init__(self, make: Callable[[str, bool], Arena]) -> None:
        self._make = make
        self.arena: Arena | None = None
        self.pauses: list[float] = []
        self.changes: list[float] = []
        self.aims: list[Aim] = []

    def play(self, group: str, own_loops: bool, seed: int) -> Arena:
        """Play a schedule on the arena. Raise AssertionError."""
        moves = schedule(seed)
        print(moves)
        if self.arena is not None and (self.arena.group, self.arena.own_loops) != (group, own_loops):
            self.discard()
        arena = self.arena = self.arena or self._make(group, own_loops)
        try:
            arena.play(moves)
        except BaseException:
            self.discard()
            raise
        return arena

    def discard(self) -> None:
        if self.arena:
            self.arena.job.kill()
        self.arena = None


def _misjudged(workers: Sequence[Forked]) -> Iterator[str]:
    """Yield evaluations with a missing or repeated sample."""
    mean = Keys().mean()
    for worker in workers:
        for event in worker.events("evaluated"):
            if abs(float(event["accuracy"]) - mean) > 0.001:
                yield f"after epoch {event['epoch']} {worker.name} found {event['accuracy']} instead of {mean}"


def _expected(worker: Forked) -> set[int | None]:
    """Return the accepted exit codes."""
    codes: set[int | None] = set()
    if worker.killed:
        codes.add(-signal.SIGKILL)
    if worker.leaving:
        # A process that gets SIGTERM before it has installed its handler ends by the signal.
        codes.add(exit_codes.LEFT if worker.text() else -signal.SIGTERM)
    return codes or {None}


class _Round:
    """A schedule that is being run."""

    def __init__(self, arena: Arena, anchor: Forked) -> None:
        self.began = time.monotonic()
        self.anchor = anchor
        self.generation = arena.job.book.last[anchor.name].generation
        self.happened = 0
        self.aims: list[Aim] = []
        self._arena, self._job = arena, arena.job
        self._armed: list[tuple[Move, list[Forked]]] = []
        self._thaws: list[tuple[float, Forked]] = []

    def make(self, move: Move) -> None:
        """Make a move, or arm its moment and cause the moment to occur."""
        if move.gap_seconds:
            self._await_hits()
            self._pass(move.gap_seconds)
        if move.kind == "join":
            self._join()
        elif not move.point:
            self._strike_one(move)
        else:
            self._arm(move)

    def settle(self) -> None:
        """Complete the schedule: no moment is armed, no worker is frozen, and leaving workers have left."""
        self._await_hits()
        if self._thaws:
            self._pass(max(at for at, _ in self._thaws) - time.monotonic())
        for worker in self._job.living:
            if worker.frozen:
                worker.signal(signal.SIGKILL)
        for worker in self._job.living:
            if worker.leaving or worker.killed:
                worker.wait(_SETTLE_SECONDS)

    def _candidates(self) -> list[Forked]:
        """Return the workers that may be hit, oldest first."""
        return [
            worker
            for worker in self._job.living
            if worker is not self.anchor and not (worker.frozen or worker.leaving or worker.killed)
        ]

    def _strike_one(self, move: Move) -> None:
        aimed_at = [victims[0] for _, victims in self._armed if len(victims) == 1]
        candidates = [worker for worker in self._candidates() if worker not in aimed_at]
        if not candidates:
            self._join()
            return
        victim = candidates[move.victim % len(candidates)]
        victim.signal(STRIKES[move.kind])
        self._struck(move, victim)

    def _join(self, armed: dict[str, str] | None = None) -> Forked:
        self.happened += 1
        return self._arena.enlist(armed)

    def _struck(self, move: Move, victim: Forked) -> None:
        self.happened += 1
        if move.kind == "freeze" and move.thaw_seconds is not None:
            self._thaws.append((time.monotonic() + move.thaw_seconds, victim))

    def _arm(self, move: Move) -> None:
        candidates = self._candidates()
        newcomer = move.point == "fetch" or (move.victim % 3 == 0 and move.point not in _OF_ONE)
        if move.trigger == "join" and (newcomer or not candidates):
            victims = [self._join(armed={move.point: move.kind})]
        elif not candidates:
            self._join()
            return
        else:
            victims = candidates if move.point in _OF_ONE else [candidates[move.victim % len(candidates)]]
            for worker in victims:
                arm(worker.target(move.point), move.point, move.kind)
            self._trigger(move, [worker for worker in candidates if worker not in victims])
        self._armed.append((move, victims))

    def _trigger(self, move: Move, others: list[Forked]) -> None:
        if move.trigger == "join" or (move.trigger == "kill" and not others):
            self._join()
        elif move.trigger == "kill":
            others[move.victim % len(others)].signal(signal.SIGKILL)
            self.happened += 1

    def _await_hits(self) -> None:
        """Wait for the armed moments; hit a worker that does not reach its moment in time at once."""
        armed, self._armed = self._armed, []
        deadline = time.monotonic() + _HIT_SECONDS
        for move, victims in armed:
            while time.monotonic() < deadline and not any(
                was_hit(worker.target(move.point), move.point) for worker in victims
            ):
                if all(worker.poll() is not None for worker in victims):
                    break
                self._pass(0.005)
            for worker in victims:
                disarm(worker.target(move.point), move.point)
            hit = [worker for worker in victims if was_hit(worker.target(move.point), move.point)]
            self.aims.append(Aim(move.point, bool(hit)))
            for worker in hit:
                worker.has_sent_itself(STRIKES[move.kind], move.point)
                self._struck(move, worker)
            if not hit:
                victims[0].signal(STRIKES[move.kind])
                self._struck(move, victims[0])

    def _pass(self, seconds: float) -> None:
        """Wait, and thaw each worker when its freeze is over."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            self._job.tend()
            for at, worker in list(self._thaws):
                if at <= now:
                    self._thaws.remove((at, worker))
                    self.happened += 1
                    if worker.frozen and not worker.killed:
                        worker.signal(signal.SIGCONT)
            if now >= until:
                return
            time.sleep(min(0.01, until - now))
