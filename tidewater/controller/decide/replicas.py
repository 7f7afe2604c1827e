"""A replica of several pods, with `workersPerReplica`, as one: what its pods' states together mean.

    pods = together(pods, 2, judge, counted)    # one PodView for each replica, with its pods as `parts`
    deletions(replica, "it failed")             # of all of its pods

Pod i belongs to replica i // workersPerReplica. The decision counts, makes, replaces and gives up replicas; only what
is done in the end names pods. A single pod is a replica of its own.

- A replica **runs** when all of its pods do. It waits for room while one of them does.
- It is **ending** as soon as one of its pods is being deleted, for example with its node. The others are deleted too:
  they have only a part of the model, and wait for the one that left. All are made anew when none of them is left.
- It has **failed** as the first of its pods did, and this counts once: the others end because of it. They are deleted
  at once, or they would hold their nodes until the replica is replaced. A pod that fails because another one of its
  replica is being deleted doesn't count, nor does one that has waited in vain for a pod that has not started.
- It is **done** when its pods are. Once one of them is, the others are left alone: they may write the last checkpoint.
  Nor are they made again.
- A pod that is missing for another reason, as when a quota refused it, is created.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tidewater.contract.exit_codes import UNCONNECTED
from tidewater.controller.decide.actions import DeletePod
from tidewater.controller.decide.exits import Verdict
from tidewater.controller.decide.observed import ENDED, NodeView, PodView, expects_node, lost

_LAST = datetime.max.replace(tzinfo=UTC)

Judge = Callable[[PodView], Verdict]


def noun(each: int) -> str:
    """Return what a job's numbers count, with so many pods in each replica."""
    return "replicas" if each > 1 else "workers"


def indices(number: int, each: int) -> range:
    """Return the indices of the pods of a replica."""
    return range(number * each, (number + 1) * each)


def together(
    pods: Iterable[PodView], each: int, judge: Judge, counted: Collection[str], nodes: Mapping[str, NodeView]
) -> list[PodView]:
    """Return the replicas of pods of one type.

    Args:
        pods: The pods that there are.
        each: The number of pods of a replica.
        judge: Returns what a pod's state means.
        counted: Uids of the pods with an end that the job's status has seen.
        nodes: By name.
    """
    if each == 1:
        return list(pods)
    groups = defaultdict[int, list[PodView]](list)
    for pod in pods:
        groups[pod.index // each].append(pod)
    found = {number: sorted(group, key=_index) for number, group in groups.items()}
    states = {number: _state(members, judge, counted, nodes) for number, members in found.items()}
    for number, state in states.items():
        if state.exit_code == UNCONNECTED and state.uid not in counted and _is_incomplete(found[number], each):
            states[number] = replace(state, disrupted=True)
    return [_replica(states[number], number, each, members) for number, members in found.items()]


def deletions(pod: PodView, reason: str, cause: PodView | None = None) -> tuple[DeletePod, ...]:
    """Return the deletion of a replica's pods that are not being deleted yet.

    Args:
        pod: The replica.
        reason: Why, as a sentence about one of its pods.
        cause: That pod. None: the one that stands for the replica.
    """
    cause = cause or pod
    return tuple(
        DeletePod(each.name, each.uid, reason if each.uid == cause.uid else _with(cause, reason))
        for each in pod.parts
        if not each.terminating
    )


def stragglers(failed: Iterable[PodView], seen: Collection[str]) -> tuple[DeletePod, ...]:
    """Return the deletion of pods that have not ended, of replicas with a failed pod.

    Args:
        failed: The replicas.
        seen: Uids of pods with an end that the job's status will have seen before anything is deleted.
    """
    return tuple(
        DeletePod(each.name, each.uid, _with(pod, "it has failed"))
        for pod in failed
        if pod.uid in seen
        for each in unended(pod)
    )


def unended(pod: PodView) -> list[PodView]:
    """Return the pods of a replica that have not ended and are not being deleted."""
    return [each for each in pod.parts if each.phase not in ENDED and not each.terminating]


def leaves_at_once(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """Return whether no pod of a replica is there any more as soon as its deletion is asked for."""
    return all(
        lost(each, nodes) or not (each.terminating or each.lingers or (each.node and each.phase not in ENDED))
        for each in pod.parts
    )


def _with(cause: PodView, reason: str) -> str:
    return f"it leaves with {cause.name} of the same replica: {reason}"


def _replica(state: PodView, number: int, each: int, members: Sequence[PodView]) -> PodView:
    """Return a replica, which looks like the pod on which its state depends."""
    restarts = min(pod.job_restarts for pod in members)
    whole = replace(state, index=number, members=tuple(members), job_restarts=restarts)
    if whole.terminating or whole.phase in ENDED or any(pod.phase in ENDED for pod in members):
        return whole
    absent = tuple(sorted({*indices(number, each)} - {pod.index for pod in members}))
    return replace(whole, phase="Pending", node=None, absent=absent) if absent else whole


def _is_incomplete(members: Sequence[PodView], each: int) -> bool:
    """Return whether a pod of a replica has not started, for which the launchers of the others wait."""
    return len(members) < each or any(pod.phase == "Pending" for pod in members)


def _state(
    members: Sequence[PodView], judge: Judge, counted: Collection[str], nodes: Mapping[str, NodeView]
) -> PodView:
    """Return the pod on which the state of a replica with these pods depends, with what they are together."""
    there = [pod for pod in members if not pod.terminating]
    verdicts = {pod.uid: judge(pod) for pod in there}
    done = [pod for pod in there if verdicts[pod.uid] is Verdict.DONE]
    failed = [pod for pod in there if verdicts[pod.uid] not in (Verdict.DONE, Verdict.LIVE)]
    seen = [pod for pod in failed if pod.uid in counted]
    going_on = (pod for pod in members if pod.phase not in ENDED and not (pod.terminating and lost(pod, nodes)))
    if done and any(going_on):
        return _live([pod for pod in there if pod.phase not in ENDED] or done)
    if seen:
        return _ended(_first(seen), members)
    if done and not failed:
        return _ended(done[0], members)
    if len(there) < len(members):
        return replace(next(pod for pod in members if pod.terminating), restarts=0)
    if failed:
        return _ended(_first(failed), members)
    return _live(there)


def _ended(pod: PodView, members: Sequence[PodView]) -> PodView:
    """Return what pods are together that have ended as `pod` did, or have to."""
    lingers = any(each.terminating or each.lingers or (each.node and each.phase not in ENDED) for each in members)
    return replace(pod, lingers=lingers, restarts=max(each.restarts for each in members))


def _live(pods: Sequence[PodView]) -> PodView:
    """Return what pods that have not ended are together."""
    ready = all(pod.ready for pod in pods)
    unplaced = [pod for pod in pods if pod.phase == "Pending" and pod.node is None]
    if unplaced:
        first = min(unplaced, key=lambda pod: (pod.unschedulable_since is None, expects_node(pod), _index(pod)))
        since = (pod.unschedulable_since for pod in unplaced if pod.unschedulable_since is not None)
        until = (pod.unschedulable_until for pod in unplaced if pod.unschedulable_until is not None)
        return replace(
            first,
            ready=ready,
            unschedulable_since=min(since, default=None),
            unschedulable_until=min(until, default=None),
        )
    for phase in ("Pending", "Unknown"):
        if found := [pod for pod in pods if pod.phase == phase]:
            return replace(max(found, key=lambda pod: bool(pod.stuck)), ready=ready)
    return replace(max(pods, key=lambda pod: pod.restarts), phase="Running", ready=ready, lingers=False)


def _first(failed: Iterable[PodView]) -> PodView:
    """Return the failed pod that made the others fail: one that was disrupted or lost, else the first."""

    def order(pod: PodView) -> tuple[bool, datetime, int]:
        return not (pod.disrupted or pod.exit_code is None), pod.finished or _LAST, pod.index

    return min(failed, key=order)


def _index(pod: PodView) -> int:
    return pod.index
