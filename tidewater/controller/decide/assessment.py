"""A job's situation: its pods sorted, the failures counted, the size aimed for, and its standing in the queue.

    situation = assessed(view, now)
    situation = replace(situation, restart=following(situation))

Everything in it follows from the view and the time; the rest of the decision reads it.

With `restartScope: Job` a whole job restarts when one of its pods is replaced. A restart begins when a pod has failed
and is retried, or was disrupted: evicted, preempted, deleted by another client, or on a node that ends. All pods of the
job are then deleted, those that have exited with 0 included, and made anew when none of them is left, but not before
the back-off of those that failed.

The number of restarts is in the status, and every pod has the number that was there when it was made. A restart begins
with a higher number in the status, and pods with a lower one can only end. So a controller that is stopped in between
goes on with the same restart, what such pods do from then on is not counted, and they begin no other restart.

The number also grows when the job gives all of its pods up, to be suspended or to wait in its queue. Otherwise those
that still end when it goes on would be taken for pods that another client has deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidewater.controller.decide.displacement import lasting, mover, vacated
from tidewater.controller.decide.exits import Tally, Verdict, due, failing, tally
from tidewater.controller.decide.observed import Admission, JobView, PodView, over_quota
from tidewater.controller.decide.pods import Goal, Site, barred, missing
from tidewater.controller.decide.queue import Standing, need, stand
from tidewater.controller.decide.replica_groups import Crew, crews
from tidewater.controller.decide.replicas import unended
from tidewater.controller.decide.shrink import shrunk
from tidewater.controller.decide.sizes import Aim, aim_of, settled
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import RestartScope
from tidewater.elasticjob.model import ElasticJob

RESTARTS = "a pod of the job failed or was disrupted, and restartScope is Job"
"""Why the pods leave in a restart, as the events about them say."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Where a job is in its restarts.

    Attributes:
        number: how many there have been, the present one included.
        under_way: whether there are pods from before the last one; all of them must go.
        time: not before this time are new pods made; None: at once.
    """

    number: int = 0
    under_way: bool = False
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a decision is made of.

    Attributes:
        view: what is observed.
        crews: the pods by replica type; those that leave because of their node are among the ending ones.
        kept: of these, the ones that stay when the job shrinks to the number aimed for, or gives pods up for its queue.
        strays: pods that have no place in the job.
        tally: the failures that count.
        aim: the number of workers aimed for.
        standing: what the queue allows.
        restart: where the job is in the restarts of all its pods.
        now: in whole seconds, as the API server keeps times.
        again: when a worker may leave a cordoned node, once the status says that the job has its size.
    """

    view: JobView
    crews: Mapping[str, Crew]
    kept: Mapping[str, Crew]
    strays: list[PodView]
    tally: Tally
    aim: Aim
    standing: Standing
    restart: Restart
    now: datetime
    again: datetime | None

    @property
    def job(self) -> ElasticJob:
        """Return the job."""
        return self.view.job

    @property
    def waits(self) -> bool:
        """Return whether the job waits in its queue or for its team's quota, and may have no pods."""
        return self.standing.admission is Admission.WAIT

    @property
    def over_quota(self) -> bool:
        """Return whether it may have none because of the quotas of teams."""
        return over_quota(self.view)

    @property
    def outdated(self) -> bool:
        """Return whether a pod is of another template than that of the spec."""
        return _is_outdated(self.view)

    @property
    def anew(self) -> bool:
        """Return whether all pods go and are made anew, so that none of them has failed for good."""
        return self.outdated or self.restart.under_way

    @property
    def site(self) -> Site:
        """Return what decides when pods are replaced, and which leave first."""
        retried = sum(meaning is Verdict.RETRY for crew in self.crews.values() for _, meaning in crew.ended)
        return Site(
            nodes=self.view.nodes,
            endpoint=self.job.spec.rdzv_endpoint,
            earlier=max(0, self.tally.restarts - retried),
            last_failure=self.tally.last_failure_time,
            job_restarts=self.restart.number,
            refusal=self.view.refusal,
            # Karpenter, which brings nodes elsewhere, ignores pods that name nodes which they avoid:
            # https://github.com/kubernetes-sigs/karpenter/issues/3214
            avoided=failing(self.tally.nodes) if self.view.fixed_nodes else (),
            lasting=lasting(self.job.status, self.crews.values(), self.now),
        )

    @property
    def start_time(self) -> datetime | None:
        """Return since when the job is active: not while it is suspended, or short of room in its queue."""
        start, admission = self.job.status.start_time, self.standing.admission
        if self.job.spec.suspend or admission in (Admission.WAIT, Admission.HEAD):
            return None
        return start if admission is None else start or self.now

    def size(self, crew: Crew) -> int:
        """Return how many pods of the type the job aims for."""
        return _size(crew, self.aim)

    def goal(self, crew: Crew) -> Goal:
        """Return how many pods of the type it may have now."""
        return _goal(self.job, self.kept[crew.type], self.size(crew), self.standing)


def assessed(view: JobView, now: datetime) -> Assessment:
    """Return the situation of a job that has not finished."""
    now = now.replace(microsecond=0)
    sorted_, strays = crews(view)
    restart = _restart(view, now)
    judged = [_judged(*each, restart) for crew in sorted_.values() for each in crew.judged()]
    counted = _tally(view, tally(view.job.status, judged, view.nodes, now))
    sorted_ = {type: vacated(crew, view.nodes) for type, crew in sorted_.items()}
    aim = aim_of(view, sorted_[names.WORKER], now)
    moved = _mover(view, sorted_[names.WORKER], aim)
    # A client that waits for the size, as `pulumi up` does, must first see that it was reached.
    wanted = view.job.spec.worker.replicas
    seen = aim.limited or view.job.status.settled_replicas == wanted
    soon = settled(view.job, sorted_[names.WORKER], aim) == wanted
    if moved is not None and seen:
        sorted_ = {type: crew.departed({moved.uid}) for type, crew in sorted_.items()}
    nodes, endpoint = view.nodes, view.job.spec.rdzv_endpoint
    kept = {type: shrunk(crew, _size(crew, aim), nodes, endpoint) for type, crew in sorted_.items()}
    standing = stand(view, kept, now)
    if standing.admission is None:
        kept = sorted_
    else:
        # Not of all pods: with a pod that leaves by shrinking, the job could next be taken for whole, or for done.
        kept = {type: _queued(view.job, crew, _size(crew, aim), standing) for type, crew in kept.items()}
    return Assessment(
        view=view,
        crews=sorted_,
        kept=kept,
        strays=[pod for pod in strays if not pod.terminating],
        tally=counted,
        aim=aim,
        standing=standing,
        restart=restart,
        now=now,
        again=now + timedelta(seconds=1) if moved is not None and soon and not seen else None,
    )


def following(situation: Assessment) -> Restart:
    """Return where a job that goes on is in its restarts, after what is observed now."""
    before, job = situation.restart, situation.job
    admission = situation.standing.admission
    if job.spec.restart_scope is not RestartScope.JOB or before.under_way or situation.outdated or admission is None:
        return before
    if job.spec.suspend or situation.waits:
        stays = any(not pod.terminating for pod in situation.view.pods)
        return Restart(before.number + 1, under_way=True) if stays else before
    replaced = [crew for crew in situation.kept.values() if _replaces(crew, situation.goal(crew))]
    if not replaced:
        return before
    ended = (each for crew in replaced for each in crew.ended)
    now, earlier = situation.now, job.status.restarts
    time = max((due(pod, how, earlier, now) for pod, how in ended), default=now)
    return Restart(before.number + 1, under_way=True, time=time if time > now else None)


def _mover(view: JobView, worker: Crew, aim: Aim) -> PodView | None:
    """Return the worker that leaves a cordoned node, of a job that has what it aims for and may look for room."""
    if view.job.spec.suspend or view.admission is not Admission.FREE or _is_outdated(view):
        return None
    if view.job.spec.restart_scope is RestartScope.JOB:
        return None  # without it the others could not go on
    return mover(worker, aim.size, view.nodes, view.job.spec.rdzv_endpoint)


def _restart(view: JobView, now: datetime) -> Restart:
    """Return where the job is in its restarts, before another one begins."""
    status = view.job.status
    number = max((status.job_restarts or 0, *(pod.job_restarts for pod in view.pods)))
    former = any(pod.job_restarts < number for pod in view.pods)
    later = status.restart_time is not None and status.restart_time > now
    return Restart(number, former, status.restart_time if later else None)


def _judged(pod: PodView, meaning: Verdict, restart: Restart) -> tuple[PodView, Verdict]:
    """Return a pod with what its state means; one from before the last restart only ends."""
    return pod, Verdict.LIVE if pod.job_restarts < restart.number else meaning


def _tally(view: JobView, found: Tally) -> Tally:
    """Return the failures that count: of a job that restarts as a whole, one for all pods that failed together.

    Forget how pods used memory, and which signals they got, if their template is being changed, or may be before the
    job is resumed.
    """
    if view.job.spec.restart_scope is RestartScope.JOB:
        found = replace(found, restarts=min(found.restarts, view.job.status.restarts + 1))
    return replace(found, out_of_memory={}, signals={}) if view.job.spec.suspend or _is_outdated(view) else found


def _is_outdated(view: JobView) -> bool:
    hashes = view.template_hashes
    return any(pod.template_hash and pod.template_hash != hashes.get(pod.type, pod.template_hash) for pod in view.pods)


def _queued(job: ElasticJob, crew: Crew, size: int, standing: Standing) -> Crew:
    """Return the pods of a type, shrunk to `size`, that the queue lets the job keep."""
    out = barred(crew, _goal(job, crew, size, standing))
    if standing.admission is Admission.WAIT:
        # Of a replica with a disrupted pod the others may still run.
        out = [*crew.live, *(pod for pod, how in crew.ended if how is Verdict.REPLACE and unended(pod))]
    return crew.without({pod.uid for pod in out})


def _goal(job: ElasticJob, crew: Crew, size: int, standing: Standing) -> Goal:
    """Return how many pods of a type, shrunk to `size`, the job may have now."""
    if standing.admission is Admission.FREE:
        return Goal(size)
    least = need(job, crew.type) if standing.admission is Admission.HEAD else crew.low
    return Goal(size, max(0, least - crew.placed))


def _size(crew: Crew, aim: Aim) -> int:
    return aim.size if crew.type == names.WORKER else crew.wanted


def _replaces(crew: Crew, goal: Goal) -> bool:
    """Return whether a pod of the type has ended or is ending, and another one is to be made."""
    lost = {pod.uid for pod, _ in crew.ended}
    return bool(lost or crew.ending) and missing(crew.without(lost), goal) > 0
