"""What the controller makes of the API server's objects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.controller.decide.world import nodes, pod
from tidewater.controller.decide.exits import Verdict, verdict
from tidewater.controller.decide.observed import NodeView, PodView, doomed, lost
from tidewater.controller.views import LONGEST_WORDS, node_view, pod_view, type_keys
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import RestartPolicy
from tidewater.elasticjob.model import ReplicaSpec

TIME = "2026-11-23T12:00:00Z"
TYPES = type_keys(["Worker", "PS"])


def observed(status: dict[str, Any] | None = None, policy: str = "Never", **metadata: Any) -> PodView:
    made = {
        "metadata": {
            "name": "j-worker-1",
            "uid": "u",
            "creationTimestamp": TIME,
            "labels": dict(names.pod_labels("j", "Worker", 1)),
            "annotations": {names.ANNOTATION_TEMPLATE_HASH: "h"},
            **metadata,
        },
        "spec": {"nodeName": "n", "restartPolicy": policy},
        "status": status or {},
    }
    return pod_view(made, TYPES)


def container(name: str, **terminated: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": 2, "state": {"terminated": terminated} if terminated else {"running": {}}}


def test_a_pod_says_which_one_it_is() -> None:
    seen = observed({"phase": "Running", "containerStatuses": [container("elasticjob-worker")]})
    assert (seen.name, seen.uid, seen.type, seen.index, seen.template_hash) == ("j-worker-1", "u", "Worker", 1, "h")
    assert (seen.phase, seen.node, seen.restarts, seen.exit_code, seen.terminating) == ("Running", "n", 2, None, False)


@pytest.mark.parametrize(
    ("trains", "sidecar", "ready"),
    [(True, False, True), (False, True, False), (None, True, True)],
    ids=["only a sidecar is not", "its probe has not succeeded", "its kubelet says nothing"],
)
def test_a_pod_is_ready_when_the_container_that_trains_is(trains: bool | None, sidecar: bool, ready: bool) -> None:
    mine = {**container("elasticjob-worker"), **({} if trains is None else {"ready": trains})}
    statuses = [mine, {**container("sidecar"), "ready": sidecar}]
    assert observed({"phase": "Running", "containerStatuses": statuses}).ready is ready


def test_a_pod_says_whether_it_is_core_and_in_which_run_of_the_job_it_was_made() -> None:
    plain = observed()
    assert (plain.core, plain.job_restarts) == (False, 0)
    tier = {**names.pod_labels("j", "Worker", 1), names.LABEL_TIER: names.CORE}
    seen = observed(labels=tier, annotations={names.ANNOTATION_JOB_RESTARTS: "3"})
    assert (seen.core, seen.job_restarts, seen.template_hash) == (True, 3, "")
    assert not observed(labels={**tier, names.LABEL_TIER: names.SURGE}).core


def test_the_least_that_a_pod_may_have_is_enough() -> None:
    seen = pod_view({"metadata": {"name": "x"}}, TYPES)
    assert (seen.type, seen.index, seen.phase, seen.node) == ("", -1, "Pending", None)


@pytest.mark.parametrize("index", ["-1", "one", "²", ""])
def test_an_index_that_is_no_number_is_none(index: str) -> None:
    assert observed(labels={names.LABEL_REPLICA_INDEX: index}).index == -1


def test_a_pod_with_a_time_of_deletion_ends() -> None:
    assert observed(deletionTimestamp=TIME).terminating


def test_the_exit_code_is_that_of_the_container_that_trains() -> None:
    statuses = [container("sidecar", exitCode=1), container("elasticjob-worker", exitCode=143, finishedAt=TIME)]
    seen = observed({"phase": "Failed", "containerStatuses": statuses})
    assert (seen.exit_code, seen.finished is not None) == (143, True)


def test_the_exit_code_is_that_of_an_only_container() -> None:
    assert observed({"containerStatuses": [container("train", exitCode=0)]}).exit_code == 0


def test_the_exit_code_is_that_of_the_first_container_that_failed_if_none_trained() -> None:
    waiting = {"name": "elasticjob-worker", "state": {"waiting": {"reason": "PodInitializing"}}}
    status = {"initContainerStatuses": [container("fetch", exitCode=7)], "containerStatuses": [waiting]}
    assert observed(status).exit_code == 7


def ended(name: str, code: int, second: int) -> dict[str, Any]:
    return container(name, exitCode=code, finishedAt=f"2026-11-23T12:00:{second:02}Z")


@pytest.mark.parametrize(
    ("phase", "containers", "sidecars", "code", "expected"),
    [
        pytest.param("Running", [container("a"), ended("b", 0, 1)], [], None, Verdict.LIVE, id="one-done"),
        pytest.param("Running", [container("a"), ended("b", 1, 1)], [], 1, Verdict.LIVE, id="one-failed"),
        pytest.param("Succeeded", [ended("a", 0, 1), ended("b", 0, 2)], [], None, Verdict.DONE, id="both-done"),
        pytest.param("Failed", [ended("a", 0, 1), ended("b", 1, 2)], [], 1, Verdict.PERMANENT, id="second-failed"),
        pytest.param("Failed", [ended("a", 143, 9), ended("b", 1, 2)], [], 1, Verdict.PERMANENT, id="first-in-time"),
        pytest.param(
            "Failed", [ended("a", 0, 1), ended("b", 1, 2)], [ended("proxy", 143, 3)], 1, Verdict.PERMANENT, id="sidecar"
        ),
    ],
)
def test_a_pod_without_a_container_that_trains_ends_when_all_have_as_the_one_that_failed_first(
    phase: str, containers: list[Any], sidecars: list[Any], code: int | None, expected: Verdict
) -> None:
    seen = observed({"phase": phase, "containerStatuses": containers, "initContainerStatuses": sidecars})
    assert (seen.phase, seen.exit_code, seen.lingers) == (phase, code, False)
    assert verdict(seen, ReplicaSpec(template={}, restart_policy=RestartPolicy.EXIT_CODE)) is expected


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (143, "Failed")])
def test_the_end_of_the_training_is_seen_although_a_sidecar_runs(code: int, phase: str) -> None:
    statuses = [container("elasticjob-worker", exitCode=code, finishedAt=TIME), container("sidecar")]
    seen = observed({"phase": "Running", "containerStatuses": statuses}, policy="Never")
    assert (seen.phase, seen.exit_code, seen.lingers) == (phase, code, True)


def test_the_last_words_of_the_container_that_trains_are_kept() -> None:
    words = "\n".join(f"line {number}" for number in range(200))
    failed = observed({"containerStatuses": [container("elasticjob-worker", exitCode=1, message=words)]})
    assert failed.last_words.endswith("line 198\nline 199")
    assert len(failed.last_words) <= LONGEST_WORDS
    last = {"terminated": {"exitCode": 3, "message": "no data\n"}}
    restarted = {"phase": "Running", "containerStatuses": [{"name": "x", "restartCount": 1, "lastState": last}]}
    assert observed(restarted).last_words == "no data"


def test_restarts_are_those_of_the_container_that_trains() -> None:
    """A sidecar that fails again and again is the kubelet's matter: the training goes on."""
    last = {"terminated": {"exitCode": 137, "finishedAt": TIME}}
    sidecar = {"name": "sidecar", "restartCount": 30, "lastState": {"terminated": {"exitCode": 1}}}
    trains = {"name": "elasticjob-worker", "restartCount": 2, "lastState": last}
    seen = observed({"phase": "Running", "containerStatuses": [sidecar, trains]}, policy="OnFailure")
    assert (seen.restarts, seen.restarted_after) == (2, 137)
    unnamed = observed({"phase": "Running", "containerStatuses": [sidecar, {"name": "b", "restartCount": 2}]})
    assert unnamed.restarts == 32


def test_a_container_that_the_kubelet_restarts_has_not_ended_its_pod() -> None:
    statuses = [container("elasticjob-worker", exitCode=1), container("sidecar")]
    seen = observed({"phase": "Running", "containerStatuses": statuses}, policy="OnFailure")
    assert (seen.phase, seen.lingers) == ("Running", False)


def test_a_pod_whose_sidecar_has_ended_first_runs() -> None:
    statuses = [container("elasticjob-worker"), container("sidecar", exitCode=1)]
    seen = observed({"phase": "Running", "containerStatuses": statuses}, policy="Never")
    assert (seen.phase, seen.lingers) == ("Running", False)


def test_a_pod_of_which_every_container_has_ended_does_not_linger() -> None:
    statuses = [container("elasticjob-worker", exitCode=0), container("sidecar", exitCode=0)]
    assert not observed({"phase": "Succeeded", "containerStatuses": statuses}, policy="Never").lingers


def test_exhausted_memory_is_seen() -> None:
    killed = container("elasticjob-worker", exitCode=137, reason="OOMKilled")
    assert observed({"containerStatuses": [killed]}).oom_killed


@pytest.mark.parametrize(
    "reason", ["Evicted", "Preempting", "NodeLost", "Shutdown", "OutOfcpu", "UnexpectedAdmissionError"]
)
def test_a_disruption_is_seen_by_its_reason(reason: str) -> None:
    assert observed({"phase": "Failed", "reason": reason}).disrupted


def test_a_disruption_is_seen_by_its_condition() -> None:
    assert observed({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}).disrupted
    assert not observed({"conditions": [{"type": "DisruptionTarget", "status": "False"}]}).disrupted


def test_a_pod_says_that_the_scheduler_has_a_node_for_it() -> None:
    assert observed({"nominatedNodeName": "node-1"}).nominated
    assert not observed({"nominatedNodeName": ""}).nominated


def test_a_pod_that_no_node_has_room_for_says_since_when() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": TIME}
    told = observed({"conditions": [{**scheduled, "message": "0/2 nodes are available"}]})
    assert told.unschedulable_since == datetime.fromisoformat(TIME)
    assert told.unschedulable_why == "0/2 nodes are available"
    assert observed({"conditions": [{**scheduled, "reason": "SchedulingGated"}]}).unschedulable_since is None
    assert observed({"conditions": [{**scheduled, "status": "True"}]}).unschedulable_since is None


def waiting(name: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


@pytest.mark.parametrize("reason", ["InvalidImageName", "CreateContainerConfigError", "CrashLoopBackOff"])
def test_a_container_that_can_not_start_says_why(reason: str) -> None:
    status = {"phase": "Pending", "containerStatuses": [container("proxy"), waiting("elasticjob-worker", reason, "x")]}
    assert (observed(status).stuck, observed(status).stuck_why) == (reason, "x")


def test_an_init_container_that_can_not_start_comes_first() -> None:
    status = {
        "initContainerStatuses": [waiting("fetch", "CrashLoopBackOff", "back-off 10s")],
        "containerStatuses": [waiting("elasticjob-worker", "PodInitializing")],
    }
    assert (observed(status).stuck, observed(status).stuck_why) == ("CrashLoopBackOff", "back-off 10s")


def test_an_image_that_can_not_be_pulled_is_one_cause_whatever_the_kubelet_does_about_it_now() -> None:
    seen = {
        observed({"containerStatuses": [waiting("w", reason)]}).stuck for reason in ("ErrImagePull", "ImagePullBackOff")
    }
    assert seen == {"ImagePullBackOff"}


def test_a_container_that_starts_for_long_says_what_it_waits_for() -> None:
    creates = observed({"startTime": TIME, "containerStatuses": [waiting("w", "ContainerCreating")]})
    assert (creates.stuck, creates.started is not None) == ("ContainerCreating", True)
    assert "`kubectl describe pod j-worker-1`" in creates.stuck_why
    initializes = {
        "containerStatuses": [waiting("w", "PodInitializing")],
        "initContainerStatuses": [container("fetch")],
    }
    seen = observed(initializes)
    assert (seen.stuck, seen.stuck_why) == ("PodInitializing", "Its init container fetch has not ended.")


def test_a_pod_with_a_scheduling_gate_waits_for_it() -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "has a gate"}
    assert (observed({"conditions": [gated]}).stuck, observed({"conditions": [gated]}).stuck_why) == (
        "SchedulingGated",
        "has a gate",
    )


def test_a_container_that_runs_is_not_stuck() -> None:
    assert observed({"phase": "Running", "containerStatuses": [waiting("w", "CrashLoopBackOff")]}).stuck == ""


def node(ready: str | None = "True", taints: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": key} for key in taints], **spec},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("object", "expected"),
    [
        pytest.param(node(), (False, False), id="ready"),
        pytest.param(node(taints=("tidewater.dev/worker",)), (False, False), id="some-taint"),
        pytest.param(node(unschedulable=True), (True, False), id="cordoned"),
        pytest.param(node("False"), (True, False), id="not-ready"),
        pytest.param(node(None), (True, False), id="new"),
        pytest.param(node("Unknown"), (True, True), id="silent"),
        pytest.param(node(taints=("node.kubernetes.io/unreachable",)), (True, True), id="unreachable"),
        pytest.param(node(taints=("aws-node-termination-handler/spot-itn",)), (True, False), id="spot-notice"),
        pytest.param(node(taints=("karpenter.sh/disrupted",)), (True, False), id="karpenter"),
        pytest.param({"metadata": {"name": "n", "deletionTimestamp": TIME}}, (True, False), id="deleted"),
    ],
)
def test_a_node_says_whether_it_will_go(object: dict[str, Any], expected: tuple[bool, bool]) -> None:
    seen = node_view(object)
    assert (seen.doomed, seen.lost) == expected


def taint(key: str, effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "effect": effect}


def going(*taints: dict[str, str], deleted: bool = False, ready: str = "True", **spec: Any) -> dict[str, Any]:
    made = node(ready, **spec)
    made["spec"]["taints"] = list(taints)
    return {**made, "metadata": {"name": "n", **({"deletionTimestamp": TIME} if deleted else {})}}


@pytest.mark.parametrize(
    ("object", "ends"),
    [
        pytest.param(going(taint("karpenter.sh/disrupted"), deleted=True), True, id="karpenter-drains-it"),
        pytest.param(going(taint("karpenter.sh/disrupted")), False, id="karpenter-looks-for-another"),
        pytest.param(going(deleted=True), False, id="new-pods-may-come"),
        pytest.param(going(deleted=True, unschedulable=True), True, id="cordoned-and-deleted"),
        pytest.param(going(unschedulable=True), False, id="cordoned"),
        pytest.param(going(taint("aws-node-termination-handler/spot-itn")), True, id="spot-notice"),
        pytest.param(going(taint("aws-node-termination-handler/rebalance-recommendation")), False, id="may-end"),
        pytest.param(
            going(taint("aws-node-termination-handler/spot-itn", "PreferNoSchedule")), False, id="pods-may-come"
        ),
        pytest.param(going(taint("ToBeDeletedByClusterAutoscaler")), True, id="cluster-autoscaler"),
        pytest.param(going(taint("karpenter.sh/disrupted"), deleted=True, ready="Unknown"), False, id="silent"),
        pytest.param(going(taint("node.kubernetes.io/not-ready"), ready="False"), False, id="not-ready"),
    ],
)
def test_a_node_says_whether_its_pods_leave_now(object: dict[str, Any], ends: bool) -> None:
    assert node_view(object).ends is ends


def test_a_node_says_whether_it_is_cordoned_and_answers() -> None:
    assert node_view(going(unschedulable=True)).cordoned
    assert not node_view(going(unschedulable=True, ready="Unknown")).cordoned
    assert not node_view(going(taint("karpenter.sh/disrupted"))).cordoned


def test_a_node_says_which_one_it_is_and_whether_devices_fail_there() -> None:
    tainted = going(taint("tidewater.dev/device-failing"))
    tainted["metadata"]["uid"] = "node-uid"
    assert (node_view(tainted).uid, node_view(tainted).tainted) == ("node-uid", True)
    assert not node_view(tainted).doomed, "its pods stay"
    assert not node_view(going(taint("tidewater.dev/worker"))).tainted


def test_a_node_says_whether_karpenter_brought_it() -> None:
    labelled = {"metadata": {"name": "n", "labels": {"karpenter.sh/nodepool": "workers"}}}
    assert node_view(labelled).elastic
    assert not node_view({"metadata": {"name": "n", "labels": {"tidewater.dev/nodes": "core"}}}).elastic


@pytest.mark.parametrize(
    ("toleration", "tolerant"),
    [
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"operator": "Exists", "effect": "NoSchedule"}, True, id="every-no-schedule"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="every-no-execute"),
        pytest.param({"key": "karpenter.sh/disrupted", "operator": "Exists"}, True, id="karpenters-taint"),
        pytest.param({"key": "tidewater.dev/worker", "operator": "Exists"}, False, id="the-workers-taint"),
    ],
)
def test_a_pod_says_whether_it_may_come_back_to_a_node_that_will_go(toleration: dict[str, str], tolerant: bool) -> None:
    made = {"metadata": {"name": "x"}, "spec": {"tolerations": [toleration]}}
    assert pod_view(made, TYPES).tolerant is tolerant


@pytest.mark.parametrize("known", [{}, nodes(sound=("other",))], ids=["no-node-is-known", "another-is-known"])
def test_a_node_that_is_not_known_may_be_new(known: dict[str, NodeView]) -> None:
    assert (doomed(pod(0), known), lost(pod(0), known)) == (False, False)


def test_a_pod_without_a_node_is_not_doomed_with_another() -> None:
    assert not doomed(pod(0, "Pending"), nodes("node-0"))
