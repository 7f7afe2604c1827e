"""The quotas of teams: what each of their jobs may have, and which jobs a change concerns.

    quotas = Quotas({"vision": Quota(2, 4), "speech": Quota(2, 4)}, {}, index.of, work.add_after)
    quotas.put(key, job)            # whenever a job appears or changes; None: it is gone
    quotas.pods_changed()           # whenever a pod appears, ends or is gone
    quotas.share(key)               # Share(2, "gives back 2 workers to team speech"); None: no quota concerns it

The rules are in `sharing`. This module makes claims of jobs, and remembers the answers until something changes.

What teams lend each other is room on the nodes that all jobs share. A job with workers in a pool takes none of it, and
frees none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tidewater.contract import labels
from tidewater.contract.controller_program import Quota
from tidewater.controller.cluster.mirror import Key
from tidewater.controller.decide.observed import ENDED, PodView
from tidewater.controller.decide.queue import begun, contends, need
from tidewater.controller.decide.replica_groups import limits
from tidewater.controller.decide.replicas import noun
from tidewater.controller.decide.sizes import allowed
from tidewater.controller.room.requests import Amounts, amounts, requested
from tidewater.controller.sharing.claims import Claim, Size
from tidewater.controller.sharing.shares import Share, shares
from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob

SETTLE_SECONDS = 0.1
"""How long to wait for further changes before the jobs are looked at again."""

_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Job:
    """What a job asks for.

    Attributes:
        claim: without the pods that it has.
        worker: what one of its pods of type Worker counts.
        others: what its pods of other types count together.
        granted: what it counts with the size that it was last allowed; 0 if it has not started.
    """

    uid: str
    claim: Claim
    worker: int
    others: int
    granted: int

    def having(self, pods: Collection[PodView]) -> Claim:
        """Return the claim with these pods."""
        there = [pod.type.lower() == names.WORKER.lower() for pod in pods if pod.phase not in ENDED]
        held = sum(there) * self.worker + (0 if all(there) else self.others)
        return replace(self.claim, held=max(held, self.granted))


class Quotas:
    """The jobs of all teams with a quota, and their shares.

    Args:
        quotas: By namespace.
        worker_size: What counts as one worker, by resource; nothing: each worker counts once.
        pods: Returns the pods of the job with this uid.
        due: Called with a job's key and the seconds after which it is due.
    """

    def __init__(
        self,
        quotas: Mapping[str, Quota],
        worker_size: Mapping[str, str],
        pods: Callable[[str], Collection[PodView]],
        due: Callable[[Key, float], None],
    ) -> None:
        self._quotas = quotas
        self._unit = amounts(worker_size)
        self._pods = pods
        self._due = due
        self._jobs: dict[Key, _Job] = {}
        self._shares: dict[Key, Share] = {}
        self._fresh = True

    def concern(self, key: Key) -> bool:
        """Return whether a job's team has a quota."""
        return key.namespace in self._quotas

    def put(self, key: Key, job: ElasticJob | None) -> None:
        """Note a job, of a team with a quota, as it is now; None if it is gone, or can't be read."""
        before = self._jobs.pop(key, None)
        if job is not None and not _in_a_pool(job):
            self._jobs[key] = _job(job, self._unit)
        if self._jobs.get(key) != before:
            self._stale()

    def pods_changed(self) -> None:
        """Note that a pod has appeared, has ended, or is gone."""
        self._stale()

    def may(self, key: Key) -> bool:
        """Return whether a job may have pods."""
        share = self.share(key)
        return share is None or share.workers > 0

    def share(self, key: Key) -> Share | None:
        """Return what a job may have; None if no quota concerns it. Jobs with another share than before become due."""
        if not self._fresh:
            self._fresh = True
            before, claims = self._shares, [job.having(self._pods(job.uid)) for job in self._jobs.values()]
            self._shares = {Key(*each): share for each, share in shares(claims, self._quotas).items()}
            for each in self._jobs:
                if each != key and self._shares.get(each) != before.get(each):
                    self._due(each, 0.0)
        return self._shares.get(key)

    def _stale(self) -> None:
        """Forget the shares, and make one of the jobs due, which asks anew."""
        self._fresh = False
        if self._jobs:
            self._due(next(iter(self._jobs)), SETTLE_SECONDS)


def _in_a_pool(job: ElasticJob) -> bool:
    """Return whether the workers are on nodes of a pool, by their node selector."""
    spec = job.spec.replica_specs[names.WORKER].template.get("spec")
    selector = spec.get("nodeSelector") if isinstance(spec, dict) else None
    return isinstance(selector, dict) and labels.POOL in selector


def _job(job: ElasticJob, unit: Amounts) -> _Job:
    """Return what a job asks for."""
    types = job.spec.replica_specs
    asked = {type: _requested(replica.template) for type, replica in types.items()}
    worker = max(1, _units(asked[names.WORKER], unit))
    rest: Amounts = {}
    for type in types.keys() - {names.WORKER}:
        wanted = limits(job, type)[2]
        rest = {name: rest.get(name, 0) + wanted * asked[type].get(name, 0) for name in unit}
    others = _units(rest, unit)
    workers = job.status.replica_statuses.get(names.WORKER)
    done = 0 if workers is None else workers.succeeded

    each = job.spec.pods_each(names.WORKER)

    def size(count: int) -> Size:
        return Size(count, others + max(0, count - done) * each * worker)

    started = contends(job) and (job.status.start_time is not None or begun(job))
    rank = (-job.spec.scheduling_policy.priority, job.created or _FIRST, job.name)
    sizes = tuple(map(size, _sizes(job, started=started))) if contends(job) else ()
    granted = size(job.status.desired).units if started and job.status.desired else 0
    claim = Claim((job.namespace, job.name), sizes, rank, started, noun=noun(each))
    return _Job(job.uid, claim, worker, others, granted)


def _sizes(job: ElasticJob, *, started: bool) -> list[int]:
    """Return the numbers of workers, or of replicas of several pods, with which the job may run."""
    low, high, wanted = limits(job, names.WORKER)
    found = allowed(job.spec, low, high if job.spec.autoscale else wanted)
    least = low if started else need(job, names.WORKER)
    return [each for each in found if each >= least] or found[-1:]


def _requested(template: Mapping[str, object]) -> Amounts:
    """Return what a pod asks for; nothing if that is not what the API server accepts."""
    spec = template.get("spec")
    try:
        return requested(spec) if isinstance(spec, dict) else {}
    except (ValueError, AttributeError, TypeError):
        return {}


def _units(asked: Amounts, unit: Amounts) -> int:
    """Return how many workers so much counts: by the resource that it needs the most of, rounded up."""
    return max((-(-asked.get(name, 0) // one) for name, one in unit.items() if one), default=0)
