"""What may be done about a job. A decision lists actions in the order in which they must be carried out.

What pods prove is written into the status before they are deleted: failures that count, the indexes of pods that have
ended for good, and the end of the job. After a crash in between, a failure is then neither forgotten with its pod nor
counted twice, and what has ended doesn't begin again. The same is true of a restart of the whole job. Otherwise the
actions come first, so that a status never says that something was done which was not; but the numbers that new pods get
are reserved in the status before.

A deletion may be followed by the creation of a pod of the same name: the one that is deleted has ended, or is to go
without a grace period, so that the API server removes it at once. If it doesn't, because of a finalizer for example,
the creation fails and the next decision repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from tidewater.controller.decide.observed import is_finished
from tidewater.elasticjob.status import ReplicaStatus, Status


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless service that gives the job's pods their names in DNS."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod. `core` pods have the core priority class, the others that of the surge.

    `job_restarts` is how many times all pods of the job have been made anew. `avoid` are nodes on which it comes only
    if no other one has room.
    """

    type: str
    index: int
    core: bool
    job_restarts: int = 0
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod if it still has this uid. `grace` None: with the pod's own grace period; 0: at once.

    `reason` is for people: it is the end of a sentence that begins with "Deleted pod NAME: ".
    """

    name: str
    uid: str
    reason: str
    grace: Literal[0] | None = None


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Keep new pods away from a node on which devices fail, if it still has this uid."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job with everything that it owns: its time to live is over."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Create a Kubernetes event about the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


Action = CreateService | CreatePod | DeletePod | TaintNode | DeleteJob | Emit


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about a job now, and what its status is.

    Attributes:
        status: equal to the job's present status if nothing in it changes; then it must not be written.
        actions: empty if there is nothing to do.
        again: when to decide again even if nothing is observed until then; None: not before something is.
    """

    status: Status
    actions: tuple[Action, ...] = ()
    again: datetime | None = None


def status_comes_first(old: Status, new: Status) -> bool:
    """Return whether a decision's status must be written before its actions are carried out."""
    counted = (old.restarts, old.counted, old.last_failure_time) != (new.restarts, new.counted, new.last_failure_time)
    restarted = old.job_restarts != new.job_restarts
    return counted or restarted or _ends(old) != _ends(new) or (is_finished(new) and not is_finished(old))


def _ends(status: Status) -> dict[str, tuple[str, str]]:
    """Return the indexes of pods that have ended for good, by replica type."""
    found = status.replica_statuses.items()
    ends = {type: (each.completed_indexes, each.failed_indexes) for type, each in found}
    return {type: each for type, each in ends.items() if any(each)}


def reserving(old: Status, decision: Decision) -> Status:
    """Return the old status with the numbers reserved that new pods get; the same if there are none.

    It must be written before the pods are created. Otherwise a pod that the status doesn't tell of yet could be lost
    together with the controller, and another pod could get its number. Nor may a pod that stays be replaced twice.
    """
    new, numbers = decision.status, dict(old.replica_statuses)
    for type in {action.type for action in decision.actions if isinstance(action, CreatePod)}:
        found = new.replica_statuses[type]
        numbers[type] = replace(
            numbers.get(type, ReplicaStatus()), next_index=found.next_index, replaced_indexes=found.replaced_indexes
        )
    if numbers == old.replica_statuses or all(found.next_index is None for found in numbers.values()):
        return old
    return replace(old, replica_statuses=numbers, out_of_memory=new.out_of_memory, signals=new.signals)
