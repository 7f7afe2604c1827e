"""The number of workers aimed for: what the spec asks for, within its bounds and allowed sizes, or more with autoscale.

    aim = aim_of(view, worker, now)
    aim.size            # 4

Without autoscale this depends on the spec alone. With it, the job also

- grows, once it has the size asked for and all of it runs: by at most as many workers as it has, so that few
  interruptions lead to the maximum and a cluster autoscaler is not asked for all of it at once;
- gives up the workers that find no room within `snoozeSeconds`, and then doesn't grow for as long;
- gives room back, as many workers as core pods of other jobs wait for room, down to its minimum; after
  `snoozeSeconds` it gives more if they still wait, and otherwise returns to its size.

With workersPerReplica all of this counts replicas; the room of one is that of as many pods.

The quotas of teams may allow less than the spec asks for. Then the job has what they allow, and does none of this.

A changed number in the spec, or a resumption, takes effect at once; growth starts again `snoozeSeconds` after the job
has that size.

A number is reached when all of these workers are ready. One that runs may still be starting, and fail of a mistake in
its arguments: a client that waits for the size would take the job for one that trains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidewater.controller.decide.observed import Admission, JobView
from tidewater.controller.decide.replica_groups import Crew
from tidewater.controller.decide.shrink import shrunk
from tidewater.elasticjob.model import ElasticJob, JobSpec


@dataclass(frozen=True, slots=True)
class Aim:
    """A number of workers, and what the status must remember of it.

    Attributes:
        size: the number aimed for.
        settled: the number in the spec that was last reached; None if none was.
        snoozed_until: no growth and no giving back before this time.
        again: when to decide again.
        limited: whether the quotas of teams allow less than the spec asks for.
    """

    size: int
    settled: int | None
    snoozed_until: datetime | None = None
    again: datetime | None = None
    limited: bool = False


def aim_of(view: JobView, worker: Crew, now: datetime) -> Aim:
    """Return the number of workers to aim for; `now` is in whole seconds."""
    spec = view.job.spec
    asked = floor(spec, worker, worker.wanted)
    if view.share is not None and view.share.workers:
        worker = replace(worker, high=max(worker.low, min(worker.high, view.share.workers)))
    base = floor(spec, worker, worker.wanted)
    if base < asked and not spec.suspend:
        return Aim(base, view.job.status.settled_replicas, limited=True)
    if spec.autoscale and not spec.suspend:
        return _autoscaled(view, worker, base, now)
    return Aim(base, view.job.status.settled_replicas)


def settled(job: ElasticJob, worker: Crew, aim: Aim) -> int | None:
    """Return the number in the spec that was last reached.

    Args:
        job: the job.
        worker: its workers as they are after the decision's deletions.
        aim: the number aimed for.
    """
    if job.spec.autoscale or aim.limited:
        return aim.settled
    reached = worker.size == aim.size == worker.serving
    return job.spec.worker.replicas if reached else aim.settled


def floor(spec: JobSpec, worker: Crew, wanted: int) -> int:
    """Return the largest allowed size that is not above `wanted`; the minimum is always allowed."""
    wanted = max(worker.low, min(worker.high, wanted))
    if spec.sizes:
        return max((size for size in spec.sizes if worker.low <= size <= wanted), default=worker.low)
    if spec.size_step:
        return wanted - (wanted - worker.low) % spec.size_step
    return wanted


def allowed(spec: JobSpec, low: int, high: int) -> list[int]:
    """Return all allowed sizes from the minimum to `high`, in ascending order."""
    if spec.sizes:
        return [low, *(size for size in sorted(spec.sizes) if low < size <= high)]
    return list(range(low, high + 1, spec.size_step or 1))


def above(spec: JobSpec, worker: Crew, size: int) -> int:
    """Return the smallest allowed size above `size`, which is an allowed one; `size` itself if there is none."""
    if spec.sizes:
        return min((other for other in spec.sizes if size < other <= worker.high), default=size)
    following = size + (spec.size_step or 1)
    return following if following <= worker.high else size


def _autoscaled(view: JobView, worker: Crew, base: int, now: datetime) -> Aim:
    spec, status = view.job.spec, view.job.status
    wanted, before = spec.worker.replicas, status.settled_replicas
    running = len(worker.active) + len(worker.done)
    later = now + timedelta(seconds=spec.snooze_seconds)
    changed = before is not None and before != wanted
    reached = worker.serving >= base
    if changed and reached:
        return Aim(base, wanted, later, later)
    settled = wanted if reached else before
    current = floor(spec, worker, status.desired or max(base, worker.size))
    snoozed = status.snoozed_until is not None and status.snoozed_until > now
    edited = changed and status.observed_generation != view.job.generation
    if snoozed and not edited:
        return Aim(current, settled, status.snoozed_until, status.snoozed_until)
    if view.waiting_cores and not snoozed:
        given = floor(spec, worker, running - -(-view.waiting_cores // worker.each))
        if given < running:
            return Aim(given, settled, later, later)
        if current < base and not edited:
            return Aim(current, settled)
    if settled != wanted:
        return Aim(base, settled, status.snoozed_until if snoozed else None)
    # Pods above the size remembered are of a growth that was interrupted before the status was written.
    grown = floor(spec, worker, worker.size)
    current = max(current, base, grown if grown >= worker.size else above(spec, worker, grown))
    return _grown(view, worker, Aim(current, settled), base, now)


def _grown(view: JobView, worker: Crew, aim: Aim, base: int, now: datetime) -> Aim:
    """Return the next size of a job that has the size asked for: more, or fewer if some find no room."""
    spec = view.job.spec
    snooze = timedelta(seconds=spec.snooze_seconds)
    if aim.size > base:
        waiting = min((pod.unschedulable_since for pod in worker.live if pod.unschedulable_since), default=None)
        kept = shrunk(worker, aim.size, view.nodes, spec.rdzv_endpoint)
        held = floor(spec, worker, max(base, kept.placed + len(kept.permanent)))
        if held < aim.size and (view.refusal or (waiting is not None and waiting + snooze <= now)):
            return Aim(held, aim.settled, now + snooze, now + snooze)
        if waiting is not None and waiting + snooze > now:
            return Aim(aim.size, aim.settled, again=waiting + snooze)
    whole = worker.size == aim.size == len(worker.active) + len(worker.permanent)
    if whole and view.admission is Admission.FREE and not view.waiting_cores:
        following = max(floor(spec, worker, 2 * aim.size), above(spec, worker, aim.size))
        return Aim(following, aim.settled)
    return aim
