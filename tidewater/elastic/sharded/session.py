"""The session of a process that divides a model with others of its worker.

Each process has a group with its counterparts in the other workers, and does what a worker of one process does. The
processes of a worker keep together:

* The first one is the member in etcd. It decides which generation comes next, and whether the worker ends.
* Wherever a group may fail, the processes vote: a failure of one group is one of all, see ``replica``.
* A received state is taken by all of them or by none.
* The processes of the worker with rank 0 collect the tensors of a checkpoint, and the first one writes it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tidewater.contract import exit_codes, leaving
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError, GroupBroken, TrainerError
from tidewater.elastic.group.replica import Parted, Replica
from tidewater.elastic.membership import records
from tidewater.elastic.membership.rules import Generation
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session import handover
from tidewater.elastic.session.session import Session
from tidewater.elastic.session.state import refuse_divergence
from tidewater.elastic.session.step import Outcome
from tidewater.elastic.session.worker import Meeting, Share, Worker, save
from tidewater.elastic.sharded.membership import of_process

_Result = TypeVar("_Result")
_VIEW_SECONDS = 10.0
"""Time in which etcd's news reach all processes of a worker."""


class ShardedSession(Session):
    """One process's part. All processes of the worker make the same calls."""

    def __init__(self, config: Config, worker: Worker, log: Log, replica: Replica) -> None:
        super().__init__(config, worker, log)
        self._replica = replica
        self._overdue = False  # whether all processes know that the worker is
        self._decides = False
        """Whether this process is doing what the others wait for."""

    def is_overdue(self) -> bool:
        """Return whether the worker has waited long enough: all its processes learn this at the same place."""
        return self._overdue or (self._decides and super().is_overdue())

    def knows(self) -> bool:
        """Return whether the first process knows of a newer generation; False in the others."""
        return not self._replica.index and super().knows()

    def together(self, call: Callable[[], _Result]) -> _Result:
        """Return what a collective call returns, when it has succeeded in all processes of this worker."""
        with self._replica.sharing():
            result = call()
            self._replica.vote()
        return result

    def over_processes(self, sums: Sequence[float]) -> list[float]:
        """Return the sums over the processes of this worker."""
        return self._replica.sum(sums)

    def decided(self, value: _Result) -> _Result:
        """Return what the first process has found."""
        found: _Result = self._replica.first(value)
        return found

    def any_of(self, flag: bool) -> bool:
        """Return whether any process has found this."""
        return any(self._replica.sum([float(flag)]))

    def check(self) -> None:
        """Do so in all processes."""
        self.together(self._ask)

    def exchange(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of this process's counterparts, when all processes have theirs."""
        with self._replica.sharing():
            return super().exchange(row)

    def confirm(self, *, before_a_step: bool = False) -> None:
        """Do so in all processes."""
        with self._replica.sharing():
            super().confirm(before_a_step=before_a_step)

    def summed(self, share: Share, sums: Callable[[], Outcome]) -> Outcome:
        """Make the sums in all processes, or in none."""
        with self._replica.sharing():
            return super().summed(share, sums)

    def pause(self, until: float) -> None:
        """Wait, and leave failures to the sums: the other processes begin the passes, which need this one."""
        if time.monotonic() < until:
            number = self._current.number
            self.waiting_since = None
            self.worker.coordinator.wait(lambda view: view.number != number, until)

    def finish(self) -> None:
        """Finish the job: the first process of rank 0 saves and records that, with what all processes give it."""
        self.confirm()
        refuse_divergence(self.worker.state)  # each process has seen only its part
        self._meets = True
        with self._saving() as decides:
            if decides:
                self.ending.finish(self._current, self.worker.group.rank)

    def end(self) -> int:
        """End, as the first process decides it. Return its exit code. Raise ConfigError if not all processes end."""
        self._meet_at_the_end()
        coordinator = self.worker.coordinator
        if self._replica.first(bool(coordinator.view.finished)):
            coordinator.wait(lambda view: bool(view.finished), time.monotonic() + _VIEW_SECONDS)
            return self.ending.finished()
        code, reported = 0, False

        def settle() -> None:
            nonlocal reported
            reported = True
            self._report(rank=-1)

        with self._saving() as decides:
            if decides:
                code = self.ending.left(self._generation, self._met_in, self._leaving_since, settle=settle)
                code = self.leaves_with if code == exit_codes.LEFT else code
        code, reported = self._replica.first([code, reported])
        if reported and self._replica.index:
            self._report(rank=-1)
        return int(code)

    def _meet_at_the_end(self) -> None:
        """Wait for the others, which may be in passes that need this process, for as long as a leave may take."""
        try:
            self._replica.meet("the end of the script's loop", leaving.LAST_SECONDS)
        except GroupBroken:  # where they meet is lost, with another machine
            raise
        except TrainerError as error:
            raise ConfigError(f"{error}. After run.leave(), go on with the loop until it ends by itself") from error

    @contextlib.contextmanager
    def _saving(self) -> Iterator[bool]:
        """Give a context like ``_deciding``, in which the first process may save: the others give their parts then."""
        self.ending.save = self._save
        with self._deciding() as decides:
            while not decides and self._replica.first():
                self._save_part()
            try:
                yield decides
            except GroupBroken:
                self._let_go(decides)
                raise
            self._let_go(decides)

    def _let_go(self, decides: bool) -> None:
        if decides:
            self._replica.first(False)

    def _save(self, worker: Worker) -> bool:
        self._replica.first(True)
        return save(worker)

    def _save_part(self) -> None:
        refuse_divergence(self.worker.state)
        save(self.worker)

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[bool]:
        """Give a context in which the others wait for the first process. Yield whether this is the first one."""
        self._decides = not self._replica.index
        try:
            yield self._decides
        finally:
            self._decides = False

    def _next_generation(self) -> Generation | None:
        """Return what the first process decides, when this one has heard of it from etcd, too."""
        found = None
        with self._deciding() as decides:
            if decides:
                found = super()._next_generation()
        text = self._replica.first(records.generation_to_json(found).decode() if found else "")
        if not text:
            return None
        generation, until = records.generation_from_json(text.encode()), time.monotonic() + _VIEW_SECONDS
        self.worker.coordinator.wait(lambda view: view.number >= generation.number or bool(view.finished), until)
        return of_process(generation, self._replica.index)

    def _hold(self, generation: Generation) -> None:
        """Wait in the first process; the others wait for its decision."""
        with self._deciding() as decides:
            if decides:
                super()._hold(generation)

    def _met(self, generation: Generation) -> Meeting:
        met = super()._met(generation)
        return replace(met, index=self._replica.index, shards=self._replica.size)

    def _come_together(self, generation: Generation, rank: int) -> bool:
        with self._replica.sharing(), self._deciding():  # a vote follows, so each may find that the worker is overdue
            reported = super()._come_together(generation, rank)
            self._replica.vote()
        state = self.worker.state
        first, *others = self._replica.gathered(state.position(generation.lineage))
        if any(other != first for other in others):
            state.present = False
            raise Parted("the processes of this worker have different states, and get that of another worker")
        return reported

    def _exchange(self, generation: Generation) -> handover.Exchange:
        return replace(super()._exchange(generation), agreed=self._replica.vote, joined=self._joined)

    def _joined(self, rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        self._replica.vote()
        table = self._replica.gathered([number for row in rows for number in row])
        width = len(rows[0]) if rows else 0
        return [
            tuple(int(number) for mine in table for number in mine[at * width : (at + 1) * width])
            for at in range(len(rows))
        ]

    def _ask(self) -> None:
        """Ask etcd, in the first process, whether others have continued without this worker."""
        with self._deciding():
            self._fence.check(self._current)

    def _before_sums(self) -> None:
        """Do so. If they have, let the sums fail: the other processes have begun the passes."""
        try:
            self._ask()
        except GroupBroken as error:
            self.worker.group.interrupt(str(error))

    def _refuse_left_behind(self) -> None:
        with self._replica.sharing():
            self._ask()
            self._overdue = self._replica.vote(says=not self._replica.index and super().is_overdue())
