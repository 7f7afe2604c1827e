"""What `kubectl describe` shows of a job, and what tools that know no ElasticJob make of its conditions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.decide.world import NOW, after, ago, condition, events, holds, job, later, pod, running, view
from tidewater.controller.decide.actions import Emit
from tidewater.controller.decide.conditions import PATIENCE, SLOW_START
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import PodView
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob, ReplicaSpec
from tidewater.elasticjob.names import NODE_STARTING
from tidewater.elasticjob.status import Condition, ReplicaStatus, Status


def message(status: object) -> str:
    found = condition(status, "Running")  # type: ignore[arg-type]
    assert found is not None
    return found.message


def starting(index: int, stuck: str = "", why: str = "") -> PodView:
    """Return a pod that has a node."""
    return pod(index, "Pending", node="n", unschedulable_since=None, stuck=stuck, stuck_why=why)


def test_a_running_job_is_described_as_by_the_old_controller() -> None:
    status = decide(view(job(2), running(0, 1)), NOW).status
    last = status.conditions[-1]
    assert (last.type, last.status, last.reason) == ("Running", "True", "ElasticJobRunning")
    assert last.message == "ElasticJob j is running."
    assert status.replica_statuses == {"Worker": ReplicaStatus(active=2)}


def test_a_running_job_says_what_keeps_it_from_its_size() -> None:
    pods = (pod(0), pod(1, "Pending"), pod(2, "Failed"), pod(3, "Pending", node="n", unschedulable_since=None))
    said = message(decide(view(job(5, low=1), pods), NOW).status)
    told = "ElasticJob j is running. 1 of 5 workers run: 1 found no room, 1 failed for good, 2 starting."
    assert said == f"{told} Pod j-worker-2 exited with code 1."


def test_a_job_that_makes_no_step_says_which_worker_it_waits_for_in_its_condition_an_event_and_one_word() -> None:
    told = " No step since 11:58:03 UTC: it waits for j-worker-1 on node node-1."
    known = after(job(2), *running(0, 1))
    first = decide(view(known, running(0, 1), silence=told), NOW)
    assert message(first.status) == f"ElasticJob j is running.{told}"
    assert first.status.waiting == "NoStep"
    warned = [(each.reason, each.message) for each in first.actions if isinstance(each, Emit)]
    assert warned == [("NoStep", told.strip())]
    still = replace(known, status=first.status)
    assert decide(view(still, running(0, 1), silence=told), later(60)).actions == ()
    over = decide(view(still, running(0, 1)), later(60))
    assert (message(over.status), over.status.waiting, events(over)) == ("ElasticJob j is running.", "", [])


def test_a_lack_of_room_comes_before_a_lack_of_steps() -> None:
    found = decide(view(job(2, low=1), (pod(0), pod(1, "Pending")), silence=" No step."), NOW)
    assert found.status.waiting == "Unschedulable"
    assert message(found.status).endswith("1 of 2 workers run: 1 found no room. No step.")


def test_an_event_warns_of_pods_without_room_in_the_schedulers_words_when_their_number_changes() -> None:
    why = "0/2 nodes are available: 2 Insufficient cpu."
    pods = (pod(0), pod(1, "Pending", unschedulable_why=why))
    first = decide(view(job(2, low=1), pods), NOW)
    warned = [(each.type, each.message) for each in first.actions if isinstance(each, Emit)]
    assert warned[1:] == [("Warning", f"1 of 2 workers run: 1 found no room. {why}")]
    told = replace(job(2, low=1), status=first.status)
    assert events(decide(view(told, pods), later(60))) == []
    assert "Unschedulable" in events(decide(view(told, pods[1:]), later(60)))


def test_a_pod_that_has_just_found_no_room_counts_as_one_that_starts_since_a_node_may_be_on_its_way() -> None:
    pods = (pod(0), pod(1, "Pending", unschedulable_since=NOW))
    first = decide(view(job(2, low=1), pods), NOW)
    assert message(first.status) == "ElasticJob j is running. 1 of 2 workers run: 1 starting."
    assert (first.status.waiting, "Unschedulable" in events(first)) == ("", False)
    told = replace(job(2, low=1), status=first.status)
    assert first.again == NOW + PATIENCE
    second = decide(view(told, pods), NOW + PATIENCE)
    assert message(second.status) == "ElasticJob j is running. 1 of 2 workers run: 1 found no room."
    assert (second.status.waiting, events(second), second.again) == ("Unschedulable", ["Unschedulable"], None)


def test_what_karpenter_says_of_a_pod_is_told_at_once() -> None:
    quota = pod(1, "Pending", unschedulable_since=NOW, unschedulable_reason="VcpuLimitExceeded", unschedulable_why="V")
    assert decide(view(job(2, low=1), (pod(0), quota)), NOW).status.waiting == "VcpuLimitExceeded"


def test_a_pod_that_can_not_start_is_told_with_its_cause_and_warned_of_in_the_kubelets_words() -> None:
    pods = (pod(0), starting(1, "ImagePullBackOff", 'Back-off pulling image "trainer:2"'), starting(2))
    first = decide(view(job(3, low=1), pods), NOW)
    sentence = "1 of 3 workers run: 1 can't start (ImagePullBackOff), 1 starting."
    assert message(first.status) == f"ElasticJob j is running. {sentence}"
    warned = [
        (each.reason, each.message) for each in first.actions if isinstance(each, Emit) and each.type == "Warning"
    ]
    assert warned == [("PodsNotStarting", f'{sentence} Back-off pulling image "trainer:2"')]


def test_what_the_kubelet_says_now_and_then_of_the_same_cause_changes_nothing() -> None:
    stuck = starting(1, "ImagePullBackOff", "Back-off")
    told = after(job(2, low=1), pod(0), stuck)
    again = decide(view(told, (pod(0), replace(stuck, stuck_why="not found"))), NOW)
    assert (again.status, again.actions) == (told.status, ())


def test_pods_that_can_not_start_for_different_causes_are_counted_apart() -> None:
    causes = ("InvalidImageName", "CreateContainerConfigError", "InvalidImageName")
    decision = decide(view(job(3), [starting(index, cause) for index, cause in enumerate(causes)]), NOW)
    assert "2 can't start (InvalidImageName), 1 can't start (CreateContainerConfigError)." in message(decision.status)
    assert events(decision) == ["PodsNotStarting"]


def test_no_event_warns_of_pods_that_only_autoscale_asks_for() -> None:
    settled = Status(state=State.RUNNING, desired=3, settled_replicas=2, observed_generation=1)
    growing = job(2, low=1, high=4, autoscale=True, status=settled)
    pods = (*running(0, 1), pod(2, "Pending", unschedulable_since=ago(1)))
    assert events(decide(view(growing, pods), NOW)) == []


SHORTAGE = "insufficient capacity, with fleet error(s), VcpuLimitExceeded: You have requested more vCPU capacity than"


def roomless(index: int, reason: str = "", why: str = "0/2 nodes are available.") -> PodView:
    """Return a pod that no node has room for, with what Karpenter says of it."""
    return pod(index, "Pending", unschedulable_reason=reason, unschedulable_why=why)


def test_a_job_says_in_karpenters_words_why_no_node_comes() -> None:
    pods = (pod(0), roomless(1, "VcpuLimitExceeded", SHORTAGE), roomless(2, "VcpuLimitExceeded", SHORTAGE))
    decision = decide(view(job(3, low=1), pods), NOW)
    sentence = f"1 of 3 workers run: 2 found no room (VcpuLimitExceeded). Karpenter: {SHORTAGE}."
    assert message(decision.status) == f"ElasticJob j is running. {sentence}"
    assert (decision.status.state, decision.status.waiting) == (State.RUNNING, "VcpuLimitExceeded")
    warned = [each.message for each in decision.actions if isinstance(each, Emit) and each.type == "Warning"]
    assert warned == [sentence]


def test_different_causes_are_counted_and_quoted_apart() -> None:
    pods = (
        pod(0),
        roomless(1, "FailedScheduling", "no instance type fits."),
        roomless(2, "VcpuLimitExceeded", "quota"),
    )
    said = message(decide(view(job(3, low=1), pods), NOW).status)
    assert "1 found no room (FailedScheduling), 1 found no room (VcpuLimitExceeded)." in said
    assert said.endswith(" Karpenter: no instance type fits. Karpenter: quota.")


def test_a_node_that_is_on_its_way_is_told_and_not_warned_of() -> None:
    decision = decide(view(job(3, low=1), (pod(0), roomless(1, NODE_STARTING), roomless(2, NODE_STARTING))), NOW)
    assert message(decision.status) == "ElasticJob j is running. 1 of 3 workers run: 2 waiting for a new node."
    assert (decision.status.waiting, events(decision)) == ("NodeStarting", ["ElasticJobRunning"])


def test_what_does_not_mend_itself_comes_before_a_node_that_is_on_its_way() -> None:
    pods = (pod(0), roomless(1, NODE_STARTING), roomless(2, "FailedScheduling", "no room"))
    assert decide(view(job(3, low=1), pods), NOW).status.waiting == "FailedScheduling"


def test_the_status_says_in_one_word_what_the_job_waits_for() -> None:
    assert decide(view(job(2, low=1), (pod(0), roomless(1))), NOW).status.waiting == "Unschedulable"
    assert decide(view(job(2), (pod(0), starting(1, "ImagePullBackOff"))), NOW).status.waiting == "ImagePullBackOff"
    assert decide(view(job(2), (pod(0), starting(1))), NOW).status.waiting == ""
    assert decide(view(job(1), refusal="quota"), NOW).status.waiting == "FailedCreatePod"
    assert decide(view(job(2), running(0, 1)), NOW).status.waiting == ""
    assert decide(view(job(2, suspend=True), (pod(0), roomless(1))), NOW).status.waiting == ""


@pytest.mark.parametrize("cause", ["ContainerCreating", "PodInitializing"])
def test_a_pod_that_starts_for_long_is_told_and_not_warned_of(cause: str) -> None:
    """It may have a Secret volume that doesn't exist, an init container that doesn't end, or only a large image."""
    slow = replace(starting(1, cause, "x"), started=ago(SLOW_START.total_seconds() - 10))
    first = decide(view(job(2, low=1), (pod(0), slow)), NOW)
    assert (first.status.waiting, first.again) == ("", later(10))
    told = decide(view(job(2, low=1), (pod(0), slow)), later(10))
    assert told.status.waiting == cause
    assert message(told.status).endswith(f"1 of 2 workers run: 1 still starting ({cause}). x")
    assert "PodsNotStarting" not in events(told)


def test_a_job_that_has_finished_waits_for_nothing() -> None:
    waits = after(job(2, low=1), pod(0), roomless(1), at=NOW)
    done = decide(view(waits, (pod(0, "Succeeded"), roomless(1))), NOW).status
    assert (waits.status.waiting, done.state, done.waiting) == ("Unschedulable", State.SUCCEEDED, "")


def test_a_job_is_looked_at_again_when_something_else_is_said_of_its_pod() -> None:
    pods = (pod(0), replace(roomless(1, "VcpuLimitExceeded", "x"), unschedulable_until=later(7)))
    assert decide(view(job(2, low=1), pods), NOW).again == later(7)


def test_a_new_job_is_created_and_not_yet_running() -> None:
    status = decide(view(job(2)), NOW).status
    assert (status.state, [each.type for each in status.conditions]) == (
        State.CREATED,
        ["Created", "Ready", "Reconciling", "Running"],
    )
    assert message(status) == "ElasticJob j is starting. 0 of 2 workers run: 2 starting."
    assert status.replica_statuses == {"Worker": ReplicaStatus(pending=2)}


def test_an_event_tells_of_each_change_of_state() -> None:
    first = decide(view(job(1), running(0)), NOW)
    assert events(first) == ["ElasticJobRunning"]
    assert events(decide(view(replace(job(1), status=first.status), running(0)), later(5))) == []


def test_a_job_below_its_minimum_restarts_and_runs_again() -> None:
    ran = after(job(2, low=2), *running(0, 1), at=ago(60))
    below = decide(view(ran, [pod(0)]), NOW)
    assert (below.status.state, holds(below.status, "Running")) == (State.RESTARTING, False)
    assert holds(below.status, "Restarting")
    assert events(below) == ["ElasticJobRestarting"]
    again = decide(view(replace(ran, status=below.status), running(0, 1)), later(5)).status
    assert (again.state, holds(again, "Running"), holds(again, "Restarting")) == (State.RUNNING, True, False)


def test_workers_that_have_succeeded_count_towards_the_minimum() -> None:
    assert decide(view(job(2, low=2), (pod(0), pod(1, "Succeeded"))), NOW).status.state is State.RUNNING


def test_a_job_without_its_parameter_server_does_not_run() -> None:
    others = {"PS": ReplicaSpec(replicas=1, template={})}
    status = decide(view(job(1, others=others), running(0)), NOW).status
    assert status.state is State.CREATED
    assert message(status).endswith("0 of 1 pods of type PS run: 1 starting.")


def test_a_refused_pod_is_quoted() -> None:
    status = decide(view(job(1), refusal="pods is forbidden: exceeded quota"), NOW).status
    assert message(status).endswith("The API server refuses a pod: pods is forbidden: exceeded quota")


def test_a_refused_service_is_quoted_and_does_not_shrink_a_job_that_has_grown() -> None:
    grown = Status(desired=3, settled_replicas=2, observed_generation=1)
    made = job(2, low=1, high=4, autoscale=True, status=grown)
    status = decide(view(made, running(0, 1), services=frozenset(), service_refusal="quota"), NOW).status
    assert message(status).endswith("The API server refuses the service: quota")
    assert status.desired == 3


def test_times_change_only_with_what_they_are_about() -> None:
    first = after(job(3, low=1), *running(0, 1, 2), at=ago(60))
    same = decide(view(first, running(0, 1, 2)), NOW)
    assert same.status is first.status
    fewer = decide(view(first, (*running(0, 1), pod(2, terminating=True))), NOW).status
    told = condition(fewer, "Running")
    assert (told.last_update_time, told.last_transition_time, fewer.last_reconcile_time) == (NOW, ago(60), NOW)


def test_times_are_in_whole_seconds_as_the_api_server_keeps_them() -> None:
    status = decide(view(job(1), running(0)), NOW.replace(microsecond=123456)).status
    assert (status.start_time, status.last_reconcile_time) == (NOW, NOW)


def test_a_resize_is_an_event() -> None:
    ran = after(job(2, low=1, high=3), *running(0, 1))
    bigger = replace(ran.spec, replica_specs={"Worker": replace(ran.spec.worker, replicas=3)})
    assert events(decide(view(replace(ran, spec=bigger), running(0, 1)), NOW)) == ["ElasticJobResized"]


def computed(of: ElasticJob) -> str:
    """Return what kstatus computes of an object of a kind that it doesn't know.

    https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/status/generic.go
    """
    status = of.status
    if status.observed_generation != of.generation:
        return "InProgress"
    true = {each.type for each in status.conditions if each.status == "True"}
    if "Reconciling" in true:
        return "InProgress"
    if "Stalled" in true:
        return "Failed"
    ready = [each.status for each in status.conditions if each.type == "Ready"]
    return "Current" if all(each == "True" for each in ready) else "InProgress"


RAN = after(job(2, low=2), *running(0, 1), at=ago(60))
SUSPENDED = after(job(2, suspend=True))
QUEUED = after(job(2, policy={"queue": "q"}))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(after(job(2)), "InProgress", id="starts"),
        pytest.param(QUEUED, "InProgress", id="queued"),
        pytest.param(RAN, "Current", id="runs"),
        pytest.param(after(job(3, low=1), pod(0), pod(1, "Pending")), "Current", id="runs-without-its-surge"),
        pytest.param(after(RAN, pod(0)), "InProgress", id="restarts"),
        pytest.param(SUSPENDED, "Current", id="suspended"),
        pytest.param(after(RAN, pod(0, "Succeeded"), pod(1)), "Current", id="succeeded"),
        pytest.param(after(RAN, pod(0, "Failed"), pod(1, "Failed")), "Failed", id="failed"),
        pytest.param(replace(RAN, generation=RAN.generation + 1), "InProgress", id="changed-and-not-seen"),
    ],
)
def test_a_tool_that_knows_no_elasticjob_sees_how_it_stands(found: ElasticJob, expected: str) -> None:
    assert computed(found) == expected


def test_the_sentence_on_a_running_job_is_that_of_running_alone() -> None:
    """Scripts look for it in what `kubectl describe` prints."""
    types = [each.type for each in RAN.status.conditions if each.message.startswith("ElasticJob j is running.")]
    assert types == ["Running"]


def test_a_failed_job_is_stalled_and_says_why() -> None:
    stalled = condition(after(RAN, pod(0, "Failed"), pod(1, "Failed")).status, "Stalled")
    assert (stalled.status, stalled.reason) == ("True", "ElasticJobFailed")
    assert stalled.message == condition(after(RAN, pod(0, "Failed"), pod(1, "Failed")).status, "Failed").message


def test_a_job_that_failed_under_an_older_controller_is_stalled_too() -> None:
    failed = Condition(type="Failed", status="True", message="It has failed.", last_transition_time=ago(60))
    old = replace(job(1), status=Status(state=State.FAILED, conditions=(failed,), completion_time=ago(60)))
    seen = replace(old, status=decide(view(old), NOW).status)
    assert computed(seen) == "Failed"
    assert condition(seen.status, "Stalled").message == "It has failed."
    assert decide(view(seen), later(60)).status is seen.status
