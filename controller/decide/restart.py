"""Restarts of a whole job: what `restartScope: Job` asks for when one of its pods is replaced.

    restart = restart_of(view, now)
    restart = following(restart, view, kept, sizes, standing.admission)
    restart.under_way       # all pods that there are must go

A restart begins when a pod has failed and is retried, or was disrupted: evicted, preempted, deleted by somebody, or on
a node that ends. All pods of the job are then deleted, those that have exited with 0 included, and made anew when none
of them is left, but not before the back-off of those that failed.

The number of restarts is in the status, and every pod has the number that was there when it was made. A restart begins
with a higher number in the status, and pods with a lower one can only end. So a controller that is stopped in between
goes on with the same restart, what such pods do from then on is not counted, and they begin no other restart.

The number also grows when the job gives all of its pods up, to be suspended or to wait in its queue. Otherwise those
that still end when it goes on would be taken for pods that somebody has deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from contract.elasticjob.choices import RestartScope
from contract.elasticjob.status import Status
from controller.decide.crews import Crew
from controller.decide.exits import Tally, Verdict, due
from controller.decide.observed import Admission, JobView, PodView

REASON = "a pod of the job failed or was disrupted, and restartScope is Job"
"""Why the pods leave, as the events about them say."""

Judged = tuple[PodView, Verdict]


@dataclass(frozen=True, slots=True)
class Restart:
    """Where a job is in its restarts.

    Attributes:
        number: how many there have been, the present one included.
        under_way: whether there are pods from before the last one; all of them must go.
        begins: whether it begins with this decision.
        time: not before this time are new pods made; None: at once.
    """

    number: int = 0
    under_way: bool = False
    begins: bool = False
    time: datetime | None = None


def restart_of(view: JobView, now: datetime) -> Restart:
    """Return where the job is in its restarts, before one begins; `now` is in whole seconds."""
    status = view.job.status
    number = max((status.job_restarts or 0, *(pod.job_restarts for pod in view.pods)))
    former = any(pod.job_restarts < number for pod in view.pods)
    later = status.restart_time is not None and status.restart_time > now
    return Restart(number, under_way=former, time=status.restart_time if later else None)


def following(
    restart: Restart,
    view: JobView,
    crews: Mapping[str, Crew],
    sizes: Mapping[str, int],
    admission: Admission,
    now: datetime,
) -> Restart:
    """Return where the job is in its restarts after what is observed now.

    Args:
        restart: where it is before.
        view: what is observed.
        crews: the pods that stay if the job shrinks.
        sizes: how many pods of each type it aims for.
        admission: what the queue allows.
        now: in whole seconds.
    """
    if view.job.spec.restart_scope is not RestartScope.JOB or restart.under_way:
        return restart
    if view.job.spec.suspend or admission is Admission.WAIT:
        stays = any(not pod.terminating for pod in view.pods)
        return Restart(restart.number + 1, under_way=True, begins=True) if stays else restart
    ended = [each for crew in crews.values() for each in crew.ended]
    if not ended and not any(crew.ending and crew.size < sizes[type] for type, crew in crews.items()):
        return restart
    time = max((due(pod, how, view.job.status.restarts, now) for pod, how in ended), default=now)
    return Restart(restart.number + 1, under_way=True, begins=True, time=time if time > now else None)


def judged(crews: Iterable[Crew], restart: Restart) -> list[Judged]:
    """Return all pods with what their state means; pods from before the last restart only end."""
    return [
        (pod, Verdict.LIVE if pod.job_restarts < restart.number else meaning)
        for crew in crews
        for pod, meaning in crew.judged()
    ]


def counted_once(tally: Tally, status: Status) -> Tally:
    """Return the failures that count when all pods of the job are made anew because of them: one."""
    return replace(tally, restarts=min(tally.restarts, status.restarts + 1))
