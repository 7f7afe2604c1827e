"""A queue of tasks: to do, doing, done. Each transition returns a new queue, and the time is an argument.

    queue = Queue.of(range(1, 11))
    queue, task = queue.take(owner, now=0.0)        # 1
    queue = queue.finish(task, owner)               # None if the task is not this owner's any more

Tasks are numbers, handed out in ascending order; a task that comes back goes to the front. One that has failed comes
back after a pause, and later to the process on which it failed, if there are others. So everything below `cursor`
that is neither waiting to be done again, nor being done, nor left out, is done: the queue needs no list of what is
done, and its record stays small however many tasks there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

T = TypeVar("T")

MAX_REASON = 300
"""Letters of the reason for which a task is left out."""
MAX_LOSSES = 5
"""A task that was lost more often is left out: it may be what kills its workers."""
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""See `pause_seconds`."""
MORE_TIME = 3
"""Each loss multiplies a task's time by this factor, so that a slow task that does not hang is done at last."""


class Status(Enum):
    """Where a task is."""

    TODO = "to do"
    DOING = "doing"
    DONE = "done"
    LEFT_OUT = "left out"
    UNKNOWN = "not of this queue"


@dataclass(frozen=True, order=True)
class Owner:
    """A process of a worker."""

    worker: str
    """The name of its pod."""
    process: str
    """A random id: a process that is started again in the same pod is another one."""


@dataclass(frozen=True)
class Held:
    """Who does a task, and since when."""

    owner: Owner
    since: float
    """Seconds of the master's monotonic clock."""


@dataclass(frozen=True)
class Queue:
    """The tasks `first` to `end` - 1."""

    first: int
    end: int
    cursor: int
    """The first task that was never handed out."""
    returned: tuple[int, ...] = ()
    """Tasks that came back, the next one first."""
    doing: Mapping[int, Held] = dataclasses.field(default_factory=dict)
    failures: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """The processes on which a task that is not yet done has failed, one for each failure."""
    pauses: Mapping[int, float] = dataclasses.field(default_factory=dict)
    """When a task that has failed may be tried again, on the master's monotonic clock."""
    losses: Mapping[int, int] = dataclasses.field(default_factory=dict)
    """How often the process that did a task died or took too long; of tasks that are not yet done."""
    left_out: Mapping[int, str] = dataclasses.field(default_factory=dict)
    """Tasks that are not handed out any more, and why."""

    @classmethod
    def of(cls, tasks: range) -> Queue:
        """Return a queue in which all tasks are to do."""
        return cls(tasks.start, tasks.stop, tasks.start)

    @property
    def finished(self) -> bool:
        """Return whether no task is to do or under way."""
        return not self.todo and not self.doing

    @property
    def todo(self) -> int:
        """Return the number of tasks that wait to be handed out."""
        return len(self.returned) + self.end - self.cursor

    @property
    def done(self) -> int:
        """Return the number of tasks that are done."""
        return self.cursor - self.first - len(self.returned) - len(self.doing) - len(self.left_out)

    def done_tasks(self) -> list[int]:
        """Return the tasks that are done, in ascending order."""
        others = {*self.returned, *self.doing, *self.left_out}
        return [task for task in range(self.first, self.cursor) if task not in others]

    def status(self, task: int) -> Status:
        """Return where a task is."""
        if not self.first <= task < self.end:
            return Status.UNKNOWN
        if task in self.doing:
            return Status.DOING
        if task in self.left_out:
            return Status.LEFT_OUT
        return Status.TODO if task >= self.cursor or task in self.returned else Status.DONE

    def held_by(self, owner: Owner) -> tuple[int, ...]:
        """Return the tasks that a process does, in ascending order."""
        return tuple(sorted(task for task, held in self.doing.items() if held.owner == owner))

    def take(
        self, owner: Owner, now: float, present: Collection[str] = (), elsewhere_seconds: float = 0.0
    ) -> tuple[Queue, int | None]:
        """Hand out the next task; None if nothing is to do now.

        Args:
            owner: The process that gets it.
            now: Seconds of the master's monotonic clock.
            present: The processes that may take tasks.
            elsewhere_seconds: For so much longer a task that has failed is kept from the processes on which it has
                failed, if there are others; one of these may hang.
        """
        for task in self.returned:
            failed_on = self.failures.get(task, ())
            elsewhere = owner.process in failed_on and not set(present) <= set(failed_on)
            pause = elsewhere_seconds if elsewhere else 0.0
            if task not in self.pauses or now >= self.pauses[task] + pause:
                rest = tuple(other for other in self.returned if other != task)
                return dataclasses.replace(self, returned=rest, doing={**self.doing, task: Held(owner, now)}), task
        if self.cursor == self.end:
            return self, None
        task = self.cursor
        return dataclasses.replace(self, cursor=task + 1, doing={**self.doing, task: Held(owner, now)}), task

    def claimed(self, tasks: Iterable[int], owner: Owner, now: float) -> Queue:
        """Give those of the tasks that came back to the process that says that it still works on them."""
        mine = set(tasks) & set(self.returned)
        if not mine:
            return self
        rest = tuple(task for task in self.returned if task not in mine)
        doing = {**self.doing, **{task: Held(owner, now) for task in mine}}
        losses = {task: count - (task in mine) for task, count in self.losses.items()}  # they were not lost
        return dataclasses.replace(
            self, returned=rest, doing=doing, losses={task: count for task, count in losses.items() if count > 0}
        )

    def finish(self, task: int, owner: Owner) -> Queue | None:
        """Count a task as done; return None if it is not this process's."""
        if not self._holds(owner, task):
            return None
        return self._forgotten(task)

    def fail(self, task: int, owner: Owner, reason: str, *, retries: int, now: float) -> Queue | None:
        """Put a task back that failed, or leave it out after so many retries; None if it is not this process's."""
        if not self._holds(owner, task):
            return None
        failed_on = (*self.failures.get(task, ()), owner.process)
        if len(failed_on) > retries:
            return self._leave_out(task, reason)
        until = now + pause_seconds(len(failed_on))
        failures, pauses = {**self.failures, task: failed_on}, {**self.pauses, task: until}
        return dataclasses.replace(self.put_back([task]), failures=failures, pauses=pauses)

    def put_back(self, tasks: Iterable[int]) -> Queue:
        """Put tasks under way back to the front, in ascending order; no failure or loss is counted."""
        back = tuple(sorted(task for task in set(tasks) if task in self.doing))
        doing = {task: held for task, held in self.doing.items() if task not in back}
        return dataclasses.replace(self, returned=back + self.returned, doing=doing)

    def again(self, tasks: Collection[int]) -> Queue:
        """Return the queue in which these tasks, which were done, and those under way are to do."""
        kept = tuple(task for task in self.returned if task not in self.doing)
        back = sorted({*kept, *self.doing, *tasks})
        return dataclasses.replace(self, returned=tuple(back), doing={})

    def lose(self, tasks: Iterable[int]) -> Queue:
        """Put tasks back after their process died or took too long; leave out those that were lost too often."""
        lost = [task for task in tasks if task in self.doing]
        queue = dataclasses.replace(
            self, losses={**self.losses, **{task: self.losses.get(task, 0) + 1 for task in lost}}
        )
        for task in lost:
            count = queue.losses[task]
            if count > MAX_LOSSES:
                at_last = self.doing[task].owner.worker
                queue = queue._leave_out(task, f"{count} workers died or took too long, at last {at_last}")
        return queue.put_back(lost)

    def late(self, now: float, limit_seconds: float) -> tuple[int, ...]:
        """Return the tasks that are under way for longer than the limit, which grows with a task's losses."""
        return tuple(
            sorted(
                task
                for task, held in self.doing.items()
                if now - held.since > limit_seconds * MORE_TIME ** self.losses.get(task, 0)
            )
        )

    def cancel(self, reason: str) -> Queue:
        """Leave out all that is to do. Tasks under way are left to end; if one comes back, cancel again."""
        left_out = {**self.left_out, **dict.fromkeys(self.returned, reason)}
        return dataclasses.replace(self, returned=(), left_out=left_out, end=self.cursor)

    def _holds(self, owner: Owner, task: int) -> bool:
        held = self.doing.get(task)
        return held is not None and held.owner == owner

    def _leave_out(self, task: int, reason: str) -> Queue:
        return dataclasses.replace(self._forgotten(task), left_out={**self.left_out, task: reason[:MAX_REASON]})

    def _forgotten(self, task: int) -> Queue:
        """Return the queue in which a task is not under way, without its history."""
        return dataclasses.replace(
            self,
            doing=_but(self.doing, task),
            failures=_but(self.failures, task),
            pauses=_but(self.pauses, task),
            losses=_but(self.losses, task),
        )


def pause_seconds(failures: int) -> float:
    """Return how long to wait after so many failures: twice as long after each further one, up to a limit."""
    return min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2.0 ** min(failures - 1, 16))


def _but(entries: Mapping[int, T], task: int) -> dict[int, T]:
    """Return the entries of all other tasks."""
    return {other: value for other, value in entries.items() if other != task}
