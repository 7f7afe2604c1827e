"""When what `job wait` waits for has come, or cannot come any more. Pure.

judge(Goal.SUCCEEDED, job)     # Verdict(reached=False, hopeless="", seen="Running, 2 of 2 workers")
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidewater.cli.show import plural
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.names import ConditionType, Reason
from tidewater.kube.cluster import Object

ENDED = (State.SUCCEEDED, State.FAILED)


class Goal(StrEnum):
    """What can be waited for."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SIZE = "size"
    RUNNING = "running"
    SUSPENDED = "suspended"
    DELETED = "deleted"


MISSED = {
    Goal.SUCCEEDED: "has not succeeded",
    Goal.FAILED: "has not failed",
    Goal.SIZE: "does not have its size",
    Goal.RUNNING: "is not running",
    Goal.SUSPENDED: "is not suspended",
    Goal.DELETED: "is not deleted",
}
"""What to say of a job that has not reached its goal."""


@dataclass(frozen=True)
class Verdict:
    """What a job's object says about a goal."""

    reached: bool
    seen: str
    """The job now, for the line that shows progress."""
    hopeless: str = ""
    """Why the goal cannot be reached any more; empty while it can."""
    failed: bool = False
    """Whether the job itself has failed."""
    advice: str = "See"
    command: str = "describe"
    """What helps if it can't be reached any more, and the job command for that."""


def judge(goal: Goal, job: Object | None) -> Verdict:
    """Return whether the goal is reached. None is a job that does not exist any more."""
    if job is None:
        gone = "" if goal is Goal.DELETED else "the job has been deleted"
        return Verdict(goal is Goal.DELETED, "deleted", gone)
    state = state_of(job)
    seen = summary(job)
    if goal is Goal.DELETED:
        return Verdict(False, seen)
    if state in ENDED:
        # A job that has ended keeps no size: a user who waits for one wants to know that there are no workers.
        reached = (goal, state) in ((Goal.SUCCEEDED, State.SUCCEEDED), (Goal.FAILED, State.FAILED))
        why = "" if reached else told(job) or f"the job has {state.lower()}"
        return Verdict(reached, seen, why, failed=state == State.FAILED)
    if goal is Goal.SIZE and state == State.SUSPENDED and job["spec"].get("suspend") and not settled(job):
        return Verdict(False, seen, "the job is suspended", advice="Start it again", command="resume")
    reached = {
        Goal.SUCCEEDED: False,
        Goal.FAILED: False,
        Goal.SIZE: settled(job),
        Goal.RUNNING: state == State.RUNNING and current(job),
        Goal.SUSPENDED: state == State.SUSPENDED and current(job),
    }[goal]
    return Verdict(reached, seen)


def settled(job: Object) -> bool:
    """Return whether the controller has reached the wanted size, and knows of the last change of it."""
    return current(job) and status_of(job).get("settledReplicas") == replicas(job)


def current(job: Object) -> bool:
    """Return whether the status is about the newest spec."""
    return int(status_of(job).get("observedGeneration") or 0) >= int(job["metadata"].get("generation") or 0)


def replicas(job: Object) -> int:
    """Return the number of workers that is wanted."""
    return int(worker_spec(job).get("replicas", 1))


def pods_each(job: Object) -> int:
    """Return how many pods a replica is; with more than one, the job's numbers count replicas."""
    return int(job["spec"].get("workersPerReplica") or 1)


def bounds(job: Object) -> tuple[int, int]:
    """Return the fewest and the most workers."""
    spec = job["spec"]
    wanted = replicas(job)
    return int(spec.get("minReplicas") or wanted), int(spec.get("maxReplicas") or wanted)


def active(job: Object) -> int:
    """Return the number of workers that run."""
    types = status_of(job).get("replicaStatuses") or {}
    return int((types.get(names.WORKER) or {}).get("active") or 0)


def state_of(job: Object) -> str:
    """Return the state in one word; `Created` until the controller has seen the job."""
    return str(status_of(job).get("state") or State.CREATED)


def summary(job: Object) -> str:
    """Return a job's state and size in a few words."""
    state = state_of(job)
    well = state == State.RUNNING and not status_of(job).get("waiting")
    reason = "" if well or state in ENDED else told(job)
    size = f"{active(job)} of {plural(replicas(job), 'replica' if pods_each(job) > 1 else 'worker')}"
    return f"{state}, {size}" + (f": {reason}" if reason else "")


def told(job: Object) -> str:
    """Return what the controller says of the job, in a sentence or more; empty until it has seen it.

    Its condition Running says so, whether that holds or not. If the job can't be read, Created says what to correct.
    """
    ended, created = condition(job, state_of(job)), condition(job, ConditionType.CREATED)
    if state_of(job) in ENDED and ended.get("status") == "True":
        return str(ended.get("message", ""))
    running = {} if invalid(job) else condition(job, ConditionType.RUNNING)
    return str((running or created).get("message", ""))


def condition(job: Object, type: str) -> dict[str, Any]:
    """Return the job's condition of a type; empty if it has none."""
    return next((each for each in status_of(job).get("conditions") or [] if each.get("type") == type), {})


def invalid(job: Object) -> bool:
    """Return whether the controller can't read the job."""
    conditions = status_of(job).get("conditions") or []
    return any(each.get("reason") == Reason.INVALID and each.get("status") == "False" for each in conditions)


def status_of(job: Object) -> dict[str, Any]:
    """Return the status; empty until the controller has written one."""
    return job.get("status") or {}


def worker_spec(job: Object) -> dict[str, Any]:
    """Return the replica spec of type Worker; empty if the object has none."""
    return (job["spec"].get("replicaSpecs") or {}).get(names.WORKER) or {}
