"""The queues of jobs: which job may have which pods, and which jobs a change in the queue concerns.

    queues = Queues(due=work.add_after)
    queues.put(key, job)                       # whenever a job appears or changes; None: it is gone
    queues.admission(key, now)                 # Admission.WAIT

The rules are in `decide.queue`, which looks at all jobs of a queue. This module remembers the answers, since one change
often concerns one job and not the thousand others of its queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tidewater.controller.cluster.mirror import Key
from tidewater.controller.decide.observed import Admission
from tidewater.controller.decide.queue import LAST, admit, next_end
from tidewater.elasticjob.model import ElasticJob

SETTLE_SECONDS = 0.1
"""How long to wait for further changes of a queue before its jobs are looked at again."""

FRESH = timedelta(seconds=1)
"""How long an answer holds if nothing changes: times in the future are in whole seconds."""


@dataclass
class _Queue:
    """One queue: its jobs without their templates, and the last answers.

    Attributes:
        jobs: By key.
        admissions: Who was admitted.
        answered: When; None if the jobs have changed since.
        ends: When the first turn ends after that.
    """

    jobs: dict[Key, ElasticJob] = field(default_factory=dict)
    admissions: dict[Key, Admission] = field(default_factory=dict)
    answered: datetime | None = None
    ends: datetime = LAST

    def holds(self, now: datetime) -> bool:
        """Return whether the answers still hold.

        At the end of a turn they don't, however fresh they are: its job looks at them only once then.
        """
        return self.answered is not None and timedelta() <= now - self.answered < FRESH and now < self.ends


class Queues:
    """All queues, by name.

    Args:
        due: Called with a job's key and the seconds after which it is due.
    """

    def __init__(self, due: Callable[[Key, float], None]) -> None:
        self._due = due
        self._queues: dict[str, _Queue] = {}
        self._queue_of: dict[Key, str] = {}

    def put(self, key: Key, job: ElasticJob | None) -> None:
        """Note a job as it is now; None if it is gone, has no queue, or can't be read."""
        before = self._queue_of.pop(key, None)
        name = None if job is None else job.spec.scheduling_policy.queue
        if before is not None and before != name:
            del self._queues[before].jobs[key]
            self._changed(before)
        if job is not None and name is not None:
            # Of a queue's jobs all are kept, so without what no rule of the queue reads.
            kept = replace(job, spec=replace(job.spec, replica_specs={}))
            self._queue_of[key] = name
            self._queues.setdefault(name, _Queue()).jobs[key] = kept
            self._changed(name)

    def admission(self, key: Key, now: datetime) -> Admission:
        """Return what a job may have. Jobs for which the answer is another than before become due."""
        name = self._queue_of.get(key)
        if name is None:
            return Admission.FREE
        queue = self._queues[name]
        if not queue.holds(now):
            before = queue.admissions
            queue.admissions = {Key(*each): found for each, found in admit(queue.jobs.values(), now).items()}
            queue.answered = now
            queue.ends = next_end(queue.jobs.values(), now)
            for other, found in queue.admissions.items():
                if other != key and before.get(other) is not found:
                    self._due(other, 0.0)
        return queue.admissions.get(key, Admission.WAIT)

    def _changed(self, name: str) -> None:
        """Forget a queue's answers, and make one of its jobs due, which asks anew."""
        queue = self._queues[name]
        queue.answered = None
        if queue.jobs:
            self._due(next(iter(queue.jobs)), SETTLE_SECONDS)
        else:
            del self._queues[name]
