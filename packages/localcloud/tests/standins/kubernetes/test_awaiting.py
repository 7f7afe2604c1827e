"""When objects count as ready, and what is said while they don't."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from localcloud.standins.kubernetes.awaiting import workloads
from localcloud.standins.kubernetes.awaiting.conditions import BadExpression, decider
from localcloud.standins.kubernetes.awaiting.decision import Failed, Object, Ready, Related, Waiting
from localcloud.standins.kubernetes.awaiting.pods import decide_pod
from localcloud.standins.kubernetes.awaiting.wait import Waiter, awaiter_for, skips_delete_wait

from tidewater.kube.errors import error_of


def related(**objects: list[Object]) -> Related:
    kinds = ("EndpointSlice", "PersistentVolumeClaim", "Pod", "ReplicaSet", "StorageClass")
    return {kind: objects.get(kind, []) for kind in kinds}


def conditions(**values: str) -> list[dict[str, str]]:
    return [
        {"type": key, "status": value, "reason": f"{key}Reason", "message": f"{key} message"}
        for key, value in values.items()
    ]


def deployment(*, revision: str = "1", generation: int = 1, available: str = "True") -> dict[str, Any]:
    rolled = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
    return {
        "metadata": {
            "uid": "d", "generation": generation, "annotations": {"deployment.kubernetes.io/revision": revision},
        },
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 1, "conditions": [*conditions(Available=available), rolled]},
    }  # fmt: skip


def replica_set(ready: int, revision: str = "1") -> dict[str, Any]:
    metadata = {
        "uid": "r",
        "annotations": {"deployment.kubernetes.io/revision": revision},
        "ownerReferences": [{"uid": "d"}],
    }
    return {"metadata": metadata, "spec": {"replicas": 2}, "status": {"readyReplicas": ready}}


def test_deployment_is_ready_with_all_pods_of_its_newest_replica_set() -> None:
    assert isinstance(workloads.decide_deployment(deployment(), related(ReplicaSet=[replica_set(2)])), Ready)
    waiting = workloads.decide_deployment(deployment(), related(ReplicaSet=[replica_set(1)]))
    assert isinstance(waiting, Waiting)
    assert "(1/2 Pods available)" in waiting.message


def test_deployment_whose_new_revision_has_no_replica_set_yet_is_not_ready() -> None:
    old_only = related(ReplicaSet=[replica_set(2, "1")])
    assert isinstance(workloads.decide_deployment(deployment(revision="2"), old_only), Waiting)


def test_deployment_not_seen_by_its_controller_is_not_ready() -> None:
    found = related(ReplicaSet=[replica_set(2)])
    assert isinstance(workloads.decide_deployment(deployment(generation=2), found), Waiting)


def test_deployment_reports_why_its_pods_are_not_ready_and_which_claim_is_unbound() -> None:
    pod = {
        "metadata": {"name": "p", "ownerReferences": [{"uid": "r"}]},
        "status": {
            "conditions": conditions(PodScheduled="True", Ready="False"),
            "containerStatuses": [
                {"name": "c", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
            ],
        },
    }
    volumes = {"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}}
    unavailable = deployment(available="False")
    unavailable["spec"]["template"] = volumes
    claim = {"metadata": {"name": "data"}, "status": {"phase": "Pending"}}
    decision = workloads.decide_deployment(
        unavailable, related(Pod=[pod], ReplicaSet=[replica_set(0)], PersistentVolumeClaim=[claim])
    )
    assert isinstance(decision, Waiting)
    assert decision.reasons == (
        "[AvailableReason] Available message",
        'Failed to bind PersistentVolumeClaim(s): "data"',
        "Minimum number of live Pods was not attained",
        "[Pod p]: [ErrImagePull] no such image",
    )


def stateful_set(generation: int = 1, strategy: str = "RollingUpdate", **status: Any) -> dict[str, Any]:
    full = {"observedGeneration": generation, "replicas": 3, "readyReplicas": 3, "currentReplicas": 3}
    revisions = {"currentRevision": "a", "updateRevision": "a"}
    return {
        "metadata": {"uid": "s", "generation": generation},
        "spec": {"replicas": 3, "updateStrategy": {"type": strategy}},
        "status": full | revisions | status,
    }


@pytest.mark.parametrize(
    ("obj", "ready"),
    [
        pytest.param(stateful_set(), True, id="all-ready"),
        pytest.param(stateful_set(readyReplicas=2), False, id="one-not-ready"),
        pytest.param(stateful_set(2, updateRevision="b"), False, id="rolling"),
        pytest.param(
            stateful_set(2, "OnDelete", updateRevision="b", currentReplicas=0), True, id="on-delete-does-not-roll"
        ),
        pytest.param(stateful_set(2, observedGeneration=1), False, id="not-seen"),
    ],
)
def test_stateful_set_is_ready_when_all_replicas_are_of_the_new_revision(obj: dict[str, Any], ready: bool) -> None:
    assert isinstance(workloads.decide_stateful_set(obj, related()), Ready) is ready


def test_daemon_set_without_nodes_is_ready_and_one_with_an_unready_pod_is_not() -> None:
    counts = dict.fromkeys(("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"), 1)
    obj = {"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}}
    assert isinstance(workloads.decide_daemon_set(obj, related()), Ready)
    busy = {"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, **counts}}
    assert isinstance(workloads.decide_daemon_set(busy, related()), Waiting)


def test_job_is_ready_when_complete_and_its_failure_includes_the_state_of_its_pods() -> None:
    done = {
        "metadata": {"name": "j", "uid": "j"},
        "status": {"startTime": "x", "conditions": conditions(Complete="True")},
    }
    assert isinstance(workloads.decide_job(done, related()), Ready)
    failed = failed_job("BackoffLimitExceeded")
    ended = {"name": "main", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    pod = {
        "metadata": {"name": "p", "ownerReferences": [{"uid": "j"}]},
        "status": {"phase": "Failed", "containerStatuses": [ended]},
    }
    decision = workloads.decide_job(failed, related(Pod=[pod]))
    assert isinstance(decision, Failed)
    assert decision.reasons == (
        "[BackoffLimitExceeded] Job has failed",
        '[Pod p]: [Error] container "main" completed with exit code 3',
    )
    running = {**done, "status": {"startTime": "x", "active": 2}}
    waiting = workloads.decide_job(running, related())
    assert isinstance(waiting, Waiting)
    assert "(Active: 2 | Succeeded: 0 | Failed: 0)" in waiting.message


def warning(uid: str, message: str) -> Object:
    about = {"kind": "Job", "uid": uid}
    return {"involvedObject": about, "type": "Warning", "reason": "WaitingForNode", "message": message}


def test_while_a_job_runs_the_warnings_about_it_are_shown() -> None:
    running = {"metadata": {"name": "j", "uid": "j"}, "status": {"startTime": "x", "active": 1}}
    events = [warning("j", "no worker node is Ready"), warning("other", "not mine")]
    for job in (running, {**running, "status": {}}):
        waiting = workloads.decide_job(job, {**related(), "Event": events})
        assert isinstance(waiting, Waiting)
        assert waiting.pods == ("[WaitingForNode] no worker node is Ready",)
    awaiter = awaiter_for({"apiVersion": "batch/v1", "kind": "Job"}, {})
    assert awaiter is not None
    assert "Event" in awaiter.related


def failed_job(reason: str) -> Object:
    condition = {"type": "Failed", "status": "True", "reason": reason, "message": "Job has failed"}
    status = {"startTime": "x", "failed": 1, "conditions": [condition]}
    return {"metadata": {"name": "j", "uid": "j"}, "status": status}


def test_a_job_that_failed_by_its_deadline_has_failed() -> None:
    assert isinstance(workloads.decide_job(failed_job("DeadlineExceeded"), related()), Failed)


@pytest.mark.parametrize("reason", ["PodFailurePolicy", "FailedIndexes", "MaxFailedIndexesExceeded"])
def test_a_job_that_failed_for_another_reason_is_waited_for_as_officially(reason: str) -> None:
    waiting = workloads.decide_job(failed_job(reason), related())
    assert isinstance(waiting, Waiting)
    assert "(Active: 0 | Succeeded: 0 | Failed: 1)" in waiting.message


def endpoint_slice(service: str = "s", *, ready: bool = True) -> Object:
    labels = {"kubernetes.io/service-name": service}
    return {"metadata": {"labels": labels}, "endpoints": [{"conditions": {"ready": ready}}]}


@pytest.mark.parametrize(
    ("spec", "slices", "ready"),
    [
        pytest.param({"selector": {"a": "b"}}, [], False, id="no-endpoints"),
        pytest.param({"selector": {"a": "b"}}, [endpoint_slice(ready=True)], True, id="endpoint"),
        pytest.param({"selector": {"a": "b"}}, [endpoint_slice(ready=False)], False, id="unready"),
        pytest.param({"selector": {"a": "b"}}, [endpoint_slice(service="t")], False, id="endpoint-of-another-service"),
        pytest.param({"selector": {"a": "b"}, "clusterIP": "None"}, [], True, id="headless"),
        pytest.param({"type": "ExternalName"}, [], True, id="external-name"),
        pytest.param({}, [], True, id="no-selector"),
        pytest.param({"type": "LoadBalancer"}, [], False, id="load-balancer-without-address"),
    ],
)
def test_service_needs_endpoints_only_where_it_selects_pods(
    spec: dict[str, Any], slices: list[Any], ready: bool
) -> None:
    decision = workloads.decide_service({"metadata": {"name": "s"}, "spec": spec}, related(EndpointSlice=slices))
    assert isinstance(decision, Ready) is ready


def test_claim_of_a_class_that_waits_for_its_first_consumer_is_ready_while_pending() -> None:
    claim = {"metadata": {"name": "c"}, "spec": {"storageClassName": "late"}, "status": {"phase": "Pending"}}
    late = related(StorageClass=[{"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}])
    assert isinstance(workloads.decide_claim(claim, late), Ready)
    assert isinstance(workloads.decide_claim({**claim, "spec": {}}, late), Waiting)
    assert isinstance(workloads.decide_claim({**claim, "status": {"phase": "Bound"}}, related()), Ready)


def test_a_user_who_may_not_list_storage_classes_can_wait_for_a_claim() -> None:
    class Forbidden:
        def list_objects(self, *_: str) -> list[Object]:
            raise error_of(403, "Forbidden", "storageclasses is forbidden")

    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Bound"}}
    awaiter = awaiter_for(claim, claim)
    assert awaiter is not None
    assert Waiter(cast(Any, Forbidden()), threading.Event(), lambda *_: None).check(claim, awaiter) == ()


def test_a_volume_is_ready_when_available_and_a_definition_when_established() -> None:
    assert isinstance(workloads.decide_volume({"metadata": {"name": "v"}}, related()), Waiting)
    assert isinstance(workloads.decide_volume({"status": {"phase": "Available"}}, related()), Ready)
    assert isinstance(workloads.decide_volume({"status": {"phase": "Failed"}}, related()), Failed)
    assert isinstance(workloads.decide_definition({}, related()), Waiting)
    for kind, value, decision in (("Established", "True", Ready), ("NamesAccepted", "False", Failed)):
        definition = {"status": {"conditions": conditions(**{kind: value})}}
        assert isinstance(workloads.decide_definition(definition, related()), decision)


def test_unschedulable_pod_reports_the_message_of_the_scheduler() -> None:
    pod = {"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": conditions(PodScheduled="False")}}
    decision = decide_pod(pod, related())
    assert isinstance(decision, Waiting)
    assert decision.pods == ("[Pod p]: PodScheduled message",)


@pytest.mark.parametrize(
    ("expression", "ready"),
    [
        pytest.param("jsonpath={.status.phase}=Running", True, id="value"),
        pytest.param("jsonpath={.status.phase}=Failed", False, id="other-value"),
        pytest.param("jsonpath={.status.phase}", True, id="exists"),
        pytest.param("jsonpath={.status.items[1].n}=2", True, id="index"),
        pytest.param("jsonpath={.status.items[*].n}=2", True, id="any-element"),
        pytest.param(r"jsonpath={.metadata.labels.a\.b}=c", True, id="escaped-dot"),
        pytest.param("condition=Ready", True, id="condition"),
        pytest.param("condition=Ready=False", False, id="condition-value"),
        pytest.param('["condition=Ready", "jsonpath={.status.none}"]', False, id="all-of-several"),
    ],
)
def test_wait_for_expressions(expression: str, ready: bool) -> None:
    obj = {
        "metadata": {"labels": {"a.b": "c"}},
        "status": {"phase": "Running", "items": [{"n": 1}, {"n": 2}], "conditions": conditions(Ready="True")},
    }
    assert isinstance(decider(expression)(obj, related()), Ready) is ready


def test_while_waiting_for_an_expression_the_warnings_about_the_object_are_shown() -> None:
    def event(uid: str, type_: str, message: str, time: str) -> Object:
        about = {"kind": "Toy", "uid": uid}
        return {"involvedObject": about, "type": type_, "reason": "FailedCreatePod", "message": message,
                "lastTimestamp": time}  # fmt: skip

    events = [
        event("t", "Warning", "quota exceeded", "2026-01-01T00:00:02Z"),
        event("t", "Warning", "no such class", "2026-01-01T00:00:01Z"),
        event("t", "Warning", "quota exceeded", "2026-01-01T00:00:03Z"),
        event("t", "Normal", "created", "2026-01-01T00:00:01Z"),
        event("other", "Warning", "not mine", "2026-01-01T00:00:01Z"),
    ]
    toy = {"metadata": {"uid": "t"}, "status": {"size": 2}}
    decision = decider("jsonpath={.status.size}=3")(toy, {"Event": events})
    assert isinstance(decision, Waiting)
    assert decision.reasons == (
        "jsonpath={.status.size}=3",
        "[FailedCreatePod] no such class",
        "[FailedCreatePod] quota exceeded",
    )
    assert isinstance(decider("jsonpath={.status.size}=2")(toy, {"Event": events}), Ready)


@pytest.mark.parametrize("expression", ["ready", "jsonpath=", "jsonpath={.a", "jsonpath={.a..b}", "[]"])
def test_bad_wait_for_expression_is_an_error(expression: str) -> None:
    with pytest.raises(BadExpression):
        decider(expression)


def test_skip_await_skips_the_wait_and_for_some_kinds_the_wait_for_deletion() -> None:
    annotated = {"metadata": {"annotations": {"pulumi.com/skipAwait": "true"}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", **annotated}
    assert awaiter_for(job, job) is None
    assert skips_delete_wait(job)
    assert not skips_delete_wait({"apiVersion": "v1", "kind": "ConfigMap", **annotated})
