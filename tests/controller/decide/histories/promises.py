"""What every decision keeps, whatever the state it is made in."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from datetime import datetime
from functools import partial

from tidewater.contract.exit_codes import DEVICE_FAILED
from tidewater.controller.decide.actions import (
    Action,
    CreatePod,
    CreateService,
    Decision,
    DeleteJob,
    DeletePod,
    Emit,
    TaintNode,
    status_comes_first,
)
from tidewater.controller.decide.exits import MOST_DEVICE_FAILURES, Verdict, verdict
from tidewater.controller.decide.observed import Admission, JobView, PodView, is_finished, lost, over_quota, parted
from tidewater.controller.decide.pods import GIVES_WAY, MOST_REPLACED
from tidewater.controller.decide.replica_groups import core_bound
from tidewater.controller.decide.replicas import together
from tidewater.controller.decide.shrink import SOUND, UNPLACED, standing
from tidewater.elasticjob import indexes, names
from tidewater.elasticjob.choices import CleanPodPolicy, PodNames, RestartScope, State
from tidewater.elasticjob.names import ConditionType
from tidewater.elasticjob.status import Status

ENDED = ("Succeeded", "Failed")
GIVES_UP = (Admission.WAIT, Admission.YIELD, Admission.ROOM, Admission.MISFIT, Admission.GIVE_BACK)
HEALTH = {ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED}


def check(view: JobView, decision: Decision, now: datetime) -> None:
    """Check one decision."""
    _check_replaced(view, decision)
    view = parted(view)
    gone = {action.uid for action in decision.actions if isinstance(action, DeletePod)}
    assert gone <= {pod.uid for pod in (*view.pods, *view.replaced)}, "deletes a pod that does not exist"
    assert len(gone) == sum(isinstance(action, DeletePod) for action in decision.actions), "deletes a pod twice"
    if is_finished(view.job.status) or is_finished(decision.status):
        _check_finished(view, decision, gone)
        return
    gone |= {pod.uid for pod in _replaced(view, decision)}
    assert decision.again is None or decision.again > now.replace(microsecond=0), "would decide again at once for ever"
    _check_numbers(view, decision, _left(view, gone))
    _check_creations(view, decision, gone)
    _check_devices(view, decision)
    _check_no_pod_stays(view, _left(view, gone))
    if view.job.spec.workers_per_replica > 1:
        _check_together(view, decision, gone)
        view, decision, gone = as_one(view, decision)
    left = _left(view, gone)
    _check_core(view, decision, gone, left)
    _check_giving_way(view, decision, left)
    _check_nodes(view, decision, left)
    _check_ends(view, decision, left)
    _check_state(decision, left)


def _left(view: JobView, gone: set[str]) -> list[PodView]:
    return [pod for pod in view.pods if not pod.terminating and pod.uid not in gone]


def as_one(view: JobView, decision: Decision) -> tuple[JobView, Decision, set[str]]:
    """Return the same with each replica of several pods as one pod, and the uids of those that leave."""
    each, replica = view.job.spec.workers_per_replica, view.job.spec.worker
    workers = [pod for pod in view.pods if pod.type == names.WORKER and pod.index >= 0]
    pods = together(workers, each, partial(verdict, replica=replica), view.job.status.counted, view.nodes)
    deletes = {action.uid: action for action in decision.actions if isinstance(action, DeletePod)}
    actions: list[Action] = [action for action in decision.actions if not isinstance(action, DeletePod | CreatePod)]
    gone = set()
    for pod in (*pods, *(pod for pod in view.pods if pod not in workers)):
        going = [part for part in pod.parts if not part.terminating]
        if going and all(part.uid in deletes for part in going):
            gone.add(pod.uid)
            actions.append(replace(deletes[going[0].uid], name=pod.name, uid=pod.uid))
    made = {
        (action.type, action.index // view.job.spec.pods_each(action.type)): action
        for action in decision.actions
        if isinstance(action, CreatePod)
    }
    there = {pod.index for pod in pods if not pod.terminating and pod.uid not in gone}
    new = {key: action for key, action in made.items() if key[0] != names.WORKER or key[1] not in there}
    actions += [replace(action, index=number) for (_, number), action in new.items()]
    others = tuple(pod for pod in view.pods if pod not in workers)
    return replace(view, pods=(*pods, *others)), replace(decision, actions=tuple(actions)), gone


def _check_together(view: JobView, decision: Decision, gone: set[str]) -> None:
    """The pods of a replica leave together and are made together, but for those that end by themselves."""
    each = view.job.spec.workers_per_replica
    workers = [pod for pod in view.pods if pod.type == names.WORKER and pod.index >= 0]
    created = {each.index for each in decision.actions if isinstance(each, CreatePod) and each.type == names.WORKER}
    for number in {pod.index // each for pod in workers} | {index // each for index in created}:
        mine = [pod for pod in workers if pod.index // each == number]
        stay = [pod for pod in mine if not pod.terminating and pod.uid not in gone]
        done = any(verdict(pod, view.job.spec.worker) is Verdict.DONE for pod in mine if not pod.terminating)
        leave = [pod for pod in mine if pod.terminating or pod.uid in gone]
        assert done or not leave or all(pod.phase in ENDED for pod in stay), (
            f"{stay} are only parts of replica {number}"
        )
        made = {index for index in created if index // each == number}
        if made:
            assert made | {pod.index for pod in stay} == {*range(number * each, number * each + each)}
            assert not any(pod.phase in ENDED for pod in stay), f"completes a replica with {stay}"


def check_again(view: JobView, decision: Decision, again: Decision) -> None:
    """Check that a decision on the outcome of a decision does nothing more."""
    reached = decision.again is not None and decision.status.settled_replicas != view.job.status.settled_replicas
    if moved(again) and (reached or any(isinstance(action, DeletePod) for action in decision.actions)):
        return  # a worker leaves a cordoned node only when the job has its size and the status says so
    if view.refusal:
        return  # the pod that was refused is tried again
    kinds = {type(action) for action in again.actions}
    view = parted(view)
    anew = outdated(view) or restarting(view, decision)
    if anew:  # the pods of the old template that had no node are gone, and new ones may be made
        kinds -= {CreatePod, CreateService, Emit}
    if is_finished(decision.status):  # its time to live may be 0
        kinds -= {DeleteJob}
    assert not kinds, f"{decision.actions} and then {again.actions}"
    before = decision.status
    if is_finished(before) and view.job.spec.workers_per_replica > 1:
        # What a replica was depends on all of its pods, and some are gone; what is left of them counts the same.
        assert difference(before, again.status).keys() <= {"replica_statuses", "last_reconcile_time"}
        for key, found in again.status.replica_statuses.items():
            old = before.replica_statuses[key]
            assert (old.active, old.pending) == (found.active, found.pending)
        return
    assert anew or not difference(before, again.status), difference(before, again.status)


def difference(before: Status, after: Status) -> dict[str, tuple[object, object]]:
    """Return the fields in which two statuses differ."""
    return {
        field.name: (getattr(before, field.name), getattr(after, field.name))
        for field in fields(Status)
        if getattr(before, field.name) != getattr(after, field.name)
    }


def recorded(status: Status, type: str) -> tuple[set[int], set[int]]:
    """Return the indexes of the type's pods that completed, and of those that failed for good."""
    found = status.replica_statuses.get(type)
    if found is None:
        return set(), set()
    return set(indexes.numbers(found.completed_indexes)), set(indexes.numbers(found.failed_indexes))


def outdated(view: JobView) -> bool:
    """Return whether all pods have to leave, since one of them is of an old template."""
    hashes = view.template_hashes
    made = [(pod.type, pod.template_hash) for every in view.pods for pod in every.parts]
    made += [(type, found.template_hash) for type, found in view.job.status.replica_statuses.items()]
    return any(of and of != hashes.get(type, of) for type, of in made)


def restarting(view: JobView, decision: Decision) -> bool:
    """Return whether all pods have to leave, since the job restarts as a whole."""
    return any(pod.job_restarts < (decision.status.job_restarts or 0) for pod in view.pods)


def core_workers(view: JobView, decision: Decision) -> set[str]:
    """Return the uids of the workers that belong to the job's minimum and need not leave because of their nodes."""
    low, leave = max(1, view.job.bounds(names.WORKER)[0]), moved(decision)
    workers = [pod for pod in view.pods if pod.type == names.WORKER and pod.index >= 0]
    if view.job.spec.worker.pod_names is not PodNames.SUCCESSIVE:
        return {pod.uid for pod in workers if pod.index < low}
    made = sorted((pod.index, pod.uid) for pod in workers if pod.core and not pod.terminating and pod.uid not in leave)
    return {uid for _, uid in made[:low]}


def _replaced(view: JobView, decision: Decision) -> tuple[PodView, ...]:
    """Return the pods that stay for their logs by the decision's status."""
    return parted(replace(view, job=replace(view.job, status=decision.status))).replaced


def _check_replaced(view: JobView, decision: Decision) -> None:
    gone = {action.uid for action in decision.actions if isinstance(action, DeletePod)}
    former = _replaced(view, decision)
    stay = Counter(pod.type for pod in former if not pod.terminating and pod.uid not in gone)
    assert max(stay.values(), default=0) <= MOST_REPLACED, f"keeps {stay} pods that were replaced"


def _check_finished(view: JobView, decision: Decision, gone: set[str]) -> None:
    kinds = {type(action) for action in decision.actions}
    before = is_finished(view.job.status)
    assert kinds <= ({DeletePod, DeleteJob} if before else {DeletePod, Emit}), f"acts on a finished job: {kinds}"
    if view.job.spec.clean_pod_policy is CleanPodPolicy.NONE and decision.status.state is State.SUCCEEDED:
        phases = {pod.phase for pod in view.pods if pod.uid in gone}
        assert phases <= {"Pending"}, f"deletes {phases} in spite of cleanPodPolicy None"


def _check_numbers(view: JobView, decision: Decision, left: list[PodView]) -> None:
    if view.job.spec.scheduling_policy.queue is not None and view.admission in (Admission.FREE, Admission.HOLD):
        return  # the queue may not have been asked since: then nothing changes
    numbers = Counter(pod.type for pod in left if pod.phase not in ENDED)
    numbers.update(action.type for action in decision.actions if isinstance(action, CreatePod))
    for type in view.job.spec.replica_specs:
        low, high = view.job.bounds(type)
        if type == names.WORKER and view.share is not None:
            high = min(high, view.share.workers)
        if over_quota(view):
            assert not numbers[type], f"{numbers[type]} pods of type {type} of a job that may have none"
        assert numbers[type] <= max(low, high, 1) * view.job.spec.pods_each(type), (
            f"{numbers[type]} pods of type {type}, and at most {high} are allowed"
        )


def _check_creations(view: JobView, decision: Decision, gone: set[str]) -> None:
    creates = [action for action in decision.actions if isinstance(action, CreatePod)]
    # A pod that runs and is deleted keeps its name for a while.
    taken = {
        (pod.type, pod.index)
        for pod in view.pods
        if pod.uid not in gone
        or (pod.node is not None and (pod.phase not in ENDED or pod.lingers) and not lost(pod, view.nodes))
    }
    for create in creates:
        low = max(view.job.bounds(create.type)[0], create.type == names.WORKER)
        kept, number = recorded(decision.status, create.type), create.index // view.job.spec.pods_each(create.type)
        assert number not in kept[0] | kept[1], f"creates {create}, which has ended for good"
        assert (create.type, create.index) not in taken, f"creates {create}, which exists"
        if view.job.spec.replica_specs[create.type].pod_names is PodNames.SUCCESSIVE:
            _check_successor(view, create)
            mine = [other.core for other in creates if other.type == create.type]
            held = {pod.index for pod in view.pods if pod.type == create.type and not pod.terminating}
            there = len(recorded(view.job.status, create.type)[0] - held) + sum(
                pod.type == create.type and pod.core and not pod.terminating and pod.uid not in gone
                for pod in view.pods
                if pod.index >= 0 and pod.index not in kept[1]
            )
            assert sum(mine) == min(len(mine), max(0, low - there)), f"{there} and {sum(mine)} of {low} core pods"
        else:
            failed = recorded(decision.status, create.type)[1]
            assert create.core == (number < core_bound(low, failed))
        taken.add((create.type, create.index))


def _check_successor(view: JobView, create: CreatePod) -> None:
    """Check that a pod gets a number that no pod has had."""
    status = view.job.status.replica_statuses.get(create.type)
    assert create.index >= ((status and status.next_index) or 0), f"{create} was reserved before"
    assert all(pod.index < create.index for pod in view.pods if pod.type == create.type), f"{create} is no successor"


def _check_core(view: JobView, decision: Decision, gone: set[str], left: list[PodView]) -> None:
    """No core worker is deleted while a surge worker could go, unless all of them go, or because of its node."""
    if not any(pod.type == names.WORKER for pod in left):
        return
    if view.job.spec.suspend or outdated(view) or view.admission in GIVES_UP or over_quota(view):
        return
    core = core_workers(view, decision)
    live = (pod for pod in left if pod.phase not in ENDED)
    surge = [pod for pod in live if pod.type == names.WORKER and pod.uid not in core]
    because_of_nodes = moved(decision)
    for pod in view.pods:
        if pod.uid not in gone or pod.uid not in core or pod.terminating:
            continue
        if pod.uid in because_of_nodes:
            continue
        rank = standing(pod, view.nodes)
        if rank < UNPLACED:
            continue  # it has ended, and is replaced or has no place any more
        assert rank < SOUND, f"{pod.name} runs, is core, and is deleted"
        worse = [other.name for other in surge if standing(other, view.nodes) <= rank]
        assert not worse, f"{pod.name} is core and is deleted, and {worse} could go"


def _check_giving_way(view: JobView, decision: Decision, left: list[PodView]) -> None:
    """A surge pod that runs gives way only if the minimum runs without it, and no surge pod takes its room."""
    uids = {each.uid for each in decision.actions if isinstance(each, DeletePod) and each.reason == GIVES_WAY}
    assert not (view.refusal and any(isinstance(action, CreatePod) for action in decision.actions))
    for type in {pod.type for pod in view.pods if pod.uid in uids}:
        made = [each.core for each in decision.actions if isinstance(each, CreatePod) and each.type == type]
        assert all(made), "a surge pod is made, which may take the room of a core pod"
        mine = [pod for pod in view.pods if pod.uid in uids and pod.type == type]
        active = sum(pod.type == type and pod.phase == "Running" for pod in left)
        low = max(view.job.bounds(type)[0], type == names.WORKER)
        assert active >= low or not any(pod.phase == "Running" for pod in mine), f"{mine} are needed"


def _check_ends(view: JobView, decision: Decision, left: list[PodView]) -> None:
    """What has ended for good is recorded, before its pod may go, and stays so unless pods are made anew or leave."""
    job = view.job
    for type, replica in job.spec.replica_specs.items():
        before, after = recorded(job.status, type), recorded(decision.status, type)
        assert not after[0] & after[1], "both completed and failed for good"
        if any(before) or any(after):
            assert before == after or status_comes_first(job.status, decision.status), (
                "a pod goes before its end is kept"
            )
        anew = restarting(view, decision) or (job.spec.restart_scope is RestartScope.JOB and job.spec.suspend)
        if outdated(view) or anew:
            continue
        for pod in left:
            ends = {Verdict.DONE: after[0], Verdict.PERMANENT: after[1]}.get(verdict(pod, replica))
            if pod.type == type and pod.index >= 0 and ends is not None:
                assert pod.index in after[0] | after[1], f"the end of {pod.name} is not recorded"
        lost = (before[0] | before[1]) - (after[0] | after[1])
        lost -= {pod.index for pod in view.pods if pod.type == type and pod.phase not in ENDED}  # of an older status
        if job.spec.suspend:
            continue
        size = decision.status.desired if type == names.WORKER else min(replica.replicas, job.bounds(type)[1])
        there = {pod.index for pod in view.pods if pod.type == type and pod.index >= 0 and not pod.terminating}
        assert not lost or len(there | before[0] | before[1]) > size, (
            f"the ends of {lost} are forgotten, and {size} pods are aimed for"
        )


def _check_no_pod_stays(view: JobView, left: list[PodView]) -> None:
    """Every pod leaves a node that ends."""
    for pod in left:
        node = view.nodes.get(pod.node or "")
        stays = pod.tolerant or pod.phase in ENDED
        assert stays or node is None or not node.ends, f"{pod.name} stays on a node that ends"


def _check_nodes(view: JobView, decision: Decision, left: list[PodView]) -> None:
    """At most one pod leaves cordoned nodes, and the minimum runs without it."""
    ends = {name for name, node in view.nodes.items() if node.ends}
    uids = moved(decision)
    pods = [pod for pod in view.pods if pod.uid in uids and ends.isdisjoint(part.node for part in pod.parts)]
    assert len(pods) <= 1, f"{pods} leave cordoned nodes together"
    if pods:
        active = sum(pod.type == names.WORKER and pod.phase == "Running" for pod in left)
        assert active >= max(1, view.job.bounds(names.WORKER)[0]), f"{pods} is needed"
        assert not all(lost(part, view.nodes) for part in pods[0].parts), f"{pods} can't confirm its end"


def _check_devices(view: JobView, decision: Decision) -> None:
    """Failures of devices are counted before their pods may go, and only nodes with many of them are left out."""
    before, after = view.job.status.nodes, decision.status.nodes
    numbers = {name: each.device_failures for name, each in after.items()}
    new = sum(numbers[name] - (before[name].device_failures if name in before else 0) for name in numbers)
    failed = {pod.uid for pod in view.pods if DEVICE_FAILED in (pod.exit_code, pod.restarted_after)}
    assert 0 <= new <= len(failed), f"{new} failures of devices in {failed}"
    assert not new or status_comes_first(view.job.status, decision.status), "a pod goes before its failure is kept"
    many = {name for name, number in numbers.items() if number >= MOST_DEVICE_FAILURES}
    assert many == {name for name in many if not view.nodes or name in view.nodes}, "a node that is gone is named"
    for action in decision.actions:
        if isinstance(action, TaintNode):
            assert view.taints_nodes, "taints a node unasked"
            assert action.name in many, f"taints {action.name} after {numbers.get(action.name, 0)} failures"
            assert not view.nodes[action.name].tainted, "taints a node twice"
        if isinstance(action, CreatePod):
            assert set(action.avoid) == (many if view.fixed_nodes else set())


def moved(decision: Decision) -> set[str]:
    """Return the uids of the pods that leave because of their nodes."""
    deletes = (action for action in decision.actions if isinstance(action, DeletePod))
    return {delete.uid for delete in deletes if delete.reason.endswith("replaced on another one")}


def _check_state(decision: Decision, left: list[PodView]) -> None:
    true = {each.type for each in decision.status.conditions if each.status == "True"} - {"Created"}
    assert len(true - HEALTH - {ConditionType.DEVICE_FAILING}) <= 1, f"{true} exclude each other"
    assert len(true & HEALTH) == 1, f"exactly one of {HEALTH} must be true, and these are: {true}"
    active = sum(pod.phase == "Running" for pod in left)
    assert decision.status.state is not State.RUNNING or active, "runs without a running pod"
