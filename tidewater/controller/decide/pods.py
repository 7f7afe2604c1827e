"""Which pods of one replica type are created and deleted, to have as many as are aimed for.

    change = fill(crew, size, site, now)

An index is free when no pod has it any more: a pod that is being deleted holds its index until it is gone, and its
successor is created then. A pod that has ended, or has no node, is gone at once, so that its successor is created in
the same decision, unless a sidecar of it still runs. The lowest free indices are created first. After a lower pod has
left, the others keep their indices: no pod is moved.

With `podNames: Successive` a pod gets the next number that no pod has had, so it never waits for one that is being
deleted. Whether it is a core pod depends on how many of those are left: so a core pod is replaced by a core pod. What
is replaced needs no deletion, since its name stays its own: the last `MOST_REPLACED` such pods stay, with their logs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from tidewater.controller.decide.actions import CreatePod, DeletePod
from tidewater.controller.decide.displacement import giving_way, shortage
from tidewater.controller.decide.exits import Verdict, due
from tidewater.controller.decide.observed import NodeView, PodView, lost
from tidewater.controller.decide.replica_groups import Crew, core_bound
from tidewater.controller.decide.replicas import deletions, indices, leaves_at_once
from tidewater.controller.decide.shrink import leaving
from tidewater.elasticjob import indexes, names
from tidewater.elasticjob.choices import PodNames

REPLACED = {
    Verdict.REPLACE: "it was disrupted, and is replaced",
    Verdict.RETRY: "it failed, and is replaced",
}

GIVES_WAY = "it gives way to a pod of the job's minimum"

MOST_REPLACED = 10
"""Pods of a type that stay for their logs after they were replaced: they use no node, but storage of the API server."""


@dataclass(frozen=True, slots=True)
class Site:
    """What `fill` must know of the rest of the job.

    Attributes:
        nodes: by name.
        endpoint: the rendezvous endpoint.
        earlier: failures of the job that were counted before those of the pods that wait to be replaced.
        last_failure: when a failure was last counted.
        job_restarts: how many times all pods of the job have been made anew.
        refusal: what the API server said of the pod that it has just refused; no other one is then created.
        lasting: whether it has refused pods for a while.
        avoided: nodes on which new pods come only if no other one has room.
    """

    nodes: Mapping[str, NodeView]
    endpoint: str
    earlier: int
    last_failure: datetime | None
    job_restarts: int = 0
    refusal: str = ""
    lasting: bool = False
    avoided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """How many pods a type is to have.

    Attributes:
        size: number of pods, those included that have ended.
        waiting: how many of them may wait for room or be replaced; None: all.
    """

    size: int
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Pods to delete and to create, and when to look again."""

    deletes: tuple[DeletePod, ...] = ()
    creates: tuple[CreatePod, ...] = ()
    again: datetime | None = None


def fill(crew: Crew, goal: Goal, site: Site, now: datetime) -> Change:
    """Return the change that gives the type the pods that it is to have."""
    if crew.size == goal.size == len(crew.active):
        return Change()
    excess = crew.size - goal.size
    gone = leaving(crew, excess, site.nodes, site.endpoint) if excess > 0 else []
    deletes = delete_all(gone, f"the job is resized to {goal.size} {crew.noun}")
    left = crew.without({pod.uid for pod in gone})
    out = barred(left, goal)
    deletes += delete_all(out, "it waits for room that another job of the queue needs first")
    left = left.without({pod.uid for pod in out})
    due_at = {pod.uid: due(pod, meaning, site.earlier, site.last_failure) for pod, meaning in left.ended}
    replaced = {uid for uid, time in due_at.items() if time <= now}
    for pod, how in left.ended:
        deletes += deletions(pod, REPLACED[how]) if pod.uid in replaced else ()
    short = shortage(left, site.refusal if site.lasting else "", now)
    deletes += delete_all(giving_way(left, goal.size, short, site.nodes, site.endpoint), GIVES_WAY)
    times = [time for time in (*due_at.values(), short.again) if time is not None and time > now]
    creates = () if site.refusal else _created(crew, left.without(replaced), goal, site)
    return Change(
        deletes=deletes,
        creates=tuple(
            replace(create, job_restarts=site.job_restarts, avoid=site.avoided)
            for create in creates
            if create.core or not short.roomless
        ),
        again=min(times, default=None),
    )


def _created(crew: Crew, left: Crew, goal: Goal, site: Site) -> tuple[CreatePod, ...]:
    """Return the creations in addition to the pods that are `left`."""
    if crew.naming is PodNames.SUCCESSIVE:
        return _successors(left, goal)
    return _creates(crew, left, goal, site)


def _creates(crew: Crew, left: Crew, goal: Goal, site: Site) -> tuple[CreatePod, ...]:
    """Return the creations: of the lowest indices that are free when only `left` and what still ends remains.

    Of a replica of several pods all are created together, or those that it lacks.
    """
    bound = core_bound(crew.low, (pod.index for pod in left.permanent))
    lacking = [CreatePod(crew.type, index, pod.index < bound) for pod in left.live for index in pod.absent]
    stays = {pod.uid for pod in left.staying()}
    lingering = (pod for pod in crew.staying() if pod.lingers and pod.uid not in stays)
    ending = {pod.index for pod in (*crew.ending, *lingering) if not leaves_at_once(pod, site.nodes)}
    number = missing(left, goal) - sum(index < goal.size for index in ending)
    if number <= 0:
        return tuple(lacking)
    taken = ending | {pod.index for pod in left.staying()}
    # A pod that runs ends only after a while.
    taken.update(pod.index for pod in crew.live if pod.node is not None)
    free = [number for number in range(goal.size) if number not in taken][:number]
    made = [CreatePod(crew.type, index, number < bound) for number in free for index in indices(number, crew.each)]
    return (*lacking, *made)


def _successors(left: Crew, goal: Goal) -> tuple[CreatePod, ...]:
    """Return the creations of pods with podNames Successive, in addition to those that are `left`."""
    lacking = left.low - sum(pod.core for pod in left.counting())
    numbers = itertools.chain(left.spare, itertools.count(left.next_index))
    fresh = itertools.islice(numbers, missing(left, goal))
    return tuple(CreatePod(left.type, index, place < lacking) for place, index in enumerate(fresh))


def inherited(rows: Mapping[str, int], job: str, left: Crew, creates: Iterable[CreatePod]) -> Mapping[str, int]:
    """Return how many times in a row pods exhausted their memory, or got a signal, after new pods replaced others.

    With podNames Successive a row goes on under the name of another pod, the longest one first.

    Args:
        rows: By name of a pod.
        job: The job's name.
        left: The pods that stay.
        creates: The pods that are created.
    """
    if left.naming is not PodNames.SUCCESSIVE or not rows:
        return rows
    own, present = names.pod_name(job, left.type, 0)[:-1], {pod.name for pod in left.staying()}
    former = [name for name in rows if name.startswith(own) and name not in present]
    former.sort(key=lambda name: -rows[name])
    made = [names.pod_name(job, left.type, create.index) for create in creates if create.type == left.type]
    heirs = dict(zip(former, made, strict=False))
    return {heirs.get(name, name): row for name, row in rows.items()}


def remaining(crew: Crew, deletes: Iterable[DeletePod]) -> Crew:
    """Return the pods of a type after these deletions, with their number if one gave way to a pod that is refused.

    Pods with podNames Successive that were replaced are not deleted. One with a sidecar that still runs is.
    """
    reasons = {delete.uid: delete.reason for delete in deletes}
    left = crew.without(reasons)
    ended = [pod for pod, how in crew.ended if reasons.get(pod.uid) == REPLACED[how] and not pod.lingers]
    if ended and crew.naming is PodNames.SUCCESSIVE:
        replaced = (*crew.replaced, *ended)
        left = replace(left, replaced=replaced, replaced_indexes=indexes.text(pod.index for pod in replaced))
    if not left.lacking:
        return replace(left, yielded_at=None)
    gave_way = any(reasons.get(pod.uid) == GIVES_WAY for pod in crew.live)
    return replace(left, yielded_at=left.size) if gave_way else left


def superfluous(crew: Crew) -> tuple[DeletePod, ...]:
    """Return the deletion of replaced pods, the first ones first, if more than enough of them stay for their logs."""
    stay = sorted((pod for pod in crew.replaced if not pod.terminating), key=lambda pod: pod.index)
    return delete_all(stay[:-MOST_REPLACED], f"it was replaced, and the logs of {MOST_REPLACED} later ones are kept")


def missing(crew: Crew, goal: Goal) -> int:
    """Return how many pods are to be created, some of them perhaps only after others are gone."""
    number = goal.size - crew.size
    if goal.waiting is not None:
        number = min(number, goal.waiting - len(crew.unplaced) - len(crew.ended))
    return max(0, number)


def barred(crew: Crew, goal: Goal) -> list[PodView]:
    """Return the pods that wait for room, or to be replaced, although they may not: the surge first."""
    if goal.waiting is None:
        return []
    waiting = [*crew.unplaced, *(pod for pod, _ in crew.ended)]
    core = crew.cores()
    waiting.sort(key=lambda pod: (core(pod), -pod.index))
    return waiting[: max(0, len(waiting) - goal.waiting)]


def delete_all(pods: Iterable[PodView], reason: str) -> tuple[DeletePod, ...]:
    """Return the deletion of all of these pods, for a reason that concerns each of them."""
    parts = (each for pod in pods for each in pod.parts if not each.terminating)
    return tuple(DeletePod(each.name, each.uid, reason) for each in parts)


def abandon(crew: Crew, nodes: Mapping[str, NodeView]) -> tuple[DeletePod, ...]:
    """Return the deletion of pods that are being deleted if their node will never confirm it.

    Kubernetes keeps such a pod for ever, or as long as the node is silent, and its name is not free. A process that
    still runs on a silent node can do no harm: the rendezvous has removed it, and its kubelet ends it on its return.
    """
    reason = "its node is lost and can't confirm that the pod has ended"
    every = (each for pod in (*crew.ending, *crew.staying()) for each in pod.parts)
    parts = (each for each in every if each.terminating and lost(each, nodes))
    return tuple(DeletePod(each.name, each.uid, reason, grace=0) for each in parts)
