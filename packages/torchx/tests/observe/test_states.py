"""A job and its pods as TorchX's states; what the states leave out is in the message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tidewater_torchx.observe.states import Observed, described, message, state_of
from tidewater_torchx.observe.stored import application
from tidewater_torchx.submit.job import ANNOTATION_CANCELLED, Submission, elastic_job
from tidewater_torchx.submit.options import Options
from torchx.specs import NONE, AppDef, AppState

from packages.torchx.tests.doubles import app, ended, pod, role
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob
from tidewater.kube.cluster import Object

ELASTIC = app(role(num_replicas=3, min_replicas=1))
ID = "training:app-kx3p"


def job(given: AppDef = ELASTIC, *, wanted: int | None = None, cancelled: bool = False, **status: Any) -> ElasticJob:
    """Return the job of an application with a status, and with another size or cancelled."""
    manifest = elastic_job(given, Submission(unique="kx3p", namespace="training", options=Options()))
    if wanted is not None:
        manifest["spec"]["replicaSpecs"][names.WORKER]["replicas"] = wanted
    if cancelled:
        manifest["metadata"]["annotations"][ANNOTATION_CANCELLED] = "2"
        manifest["spec"]["suspend"] = True
    manifest["metadata"]["generation"] = 2
    return codec.job_of({**manifest, "status": {"observedGeneration": 2, **status}})


def condition(type: str, message: str, *, holds: bool = True, reason: str = "") -> dict[str, str]:
    return {"type": type, "status": "True" if holds else "False", "message": message, "reason": reason}


def counts(**workers: int) -> dict[str, Any]:
    return {"replicaStatuses": {names.WORKER: workers}}


def seen(found: ElasticJob, pods: Sequence[Object] = (), lines: Mapping[str, Sequence[str]] | None = None) -> Observed:
    return Observed(found, *application(found), pods, lines or {})


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, AppState.SUBMITTED),
        (State.CREATED, AppState.PENDING),
        (State.QUEUED, AppState.PENDING),
        (State.RUNNING, AppState.RUNNING),
        (State.RESTARTING, AppState.PENDING),
        (State.SUSPENDED, AppState.PENDING),
        (State.SUCCEEDED, AppState.SUCCEEDED),
        (State.FAILED, AppState.FAILED),
    ],
)
def test_every_state_has_its_counterpart(state: State | None, expected: AppState) -> None:
    assert state_of(job() if state is None else job(state=state.value)) is expected


def test_there_is_no_state_without_a_counterpart() -> None:
    assert all(state_of(job(state=state.value)) is not AppState.UNKNOWN for state in State)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"state": "Running", **counts(active=2)}, AppState.RUNNING, id="controller-has-not-seen-it"),
        pytest.param({"state": "Suspended", **counts(active=1)}, AppState.RUNNING, id="a-pod-is-left"),
        pytest.param({"state": "Suspended", "observedGeneration": 1}, AppState.RUNNING, id="status-of-earlier"),
        pytest.param({"state": "Suspended", **counts(failed=1)}, AppState.CANCELLED, id="all-pods-have-ended"),
        pytest.param({"state": "Succeeded"}, AppState.SUCCEEDED, id="had-succeeded-before"),
    ],
)
def test_a_cancelled_application_runs_until_its_pods_have_ended(status: dict[str, Any], expected: AppState) -> None:
    assert state_of(job(cancelled=True, **status)) is expected


def test_an_application_that_had_failed_before_it_was_cancelled_says_why() -> None:
    found = job(cancelled=True, state="Failed", conditions=[condition("Failed", "Too many failures.")])
    assert message(seen(found)) == "Too many failures."


def test_a_cancelled_application_stays_so_while_it_is_deleted() -> None:
    going = replace(job(cancelled=True, state="Suspended"), generation=3, deleting=True)
    assert state_of(going) is AppState.CANCELLED


@pytest.mark.parametrize("state", [None, State.RUNNING, State.SUCCEEDED])
def test_an_application_that_is_being_deleted_says_so(state: State | None) -> None:
    found = replace(job() if state is None else job(state=state.value), deleting=True)
    assert message(seen(found)) == "The application is being deleted."


def test_a_pending_application_says_what_it_waits_for() -> None:
    told = "ElasticJob app-kx3p is starting. 0 of 3 workers run: 3 found no room."
    found = job(state="Created", conditions=[condition("Created", "x"), condition("Running", told, holds=False)])
    assert message(seen(found)) == told


def test_a_job_that_the_controller_cannot_read_says_why() -> None:
    conditions = [
        condition("Created", "spec.x is wrong", holds=False, reason="ElasticJobInvalid"),
        condition("Running", "ElasticJob app-kx3p is running."),
    ]
    assert message(seen(job(state="Created", conditions=conditions))) == "spec.x is wrong"


def test_an_application_that_nobody_has_seen_says_so() -> None:
    assert message(seen(job())).startswith("No controller has seen the job yet.")


@pytest.mark.parametrize(
    ("status", "wanted", "told"),
    [
        pytest.param({"desired": 3, "settledReplicas": 3, **counts(active=3)}, 3, "", id="has-its-size"),
        pytest.param(
            {"desired": 3, "settledReplicas": 3, **counts(active=2, pending=1)},
            3,
            "Role trainer runs with 2 of 3 replicas, and needs at least 1. ",
            id="fewer-than-wanted",
        ),
        pytest.param(
            {"desired": 2, "settledReplicas": 3, **counts(active=3)},
            2,
            "Role trainer is resized from 3 to 2 replicas; 3 run now. ",
            id="shrinks",
        ),
        pytest.param(
            {"desired": 3, "settledReplicas": 2, **counts(active=2)},
            3,
            "Role trainer is resized from 2 to 3 replicas; 2 run now. ",
            id="grows",
        ),
        pytest.param({"desired": 3, **counts(active=2, succeeded=1)}, 3, "", id="one-has-finished"),
    ],
)
def test_a_running_application_says_how_many_run(status: dict[str, Any], wanted: int, told: str) -> None:
    running = condition("Running", "ElasticJob app-kx3p is running.")
    found = job(wanted=wanted, state="Running", conditions=[running], **status)
    assert message(seen(found)) == f"{told}ElasticJob app-kx3p is running."


def test_a_role_beside_the_worker_says_how_many_run() -> None:
    found = job(
        app(role(), role("ps", num_replicas=2)),
        state="Running",
        replicaStatuses={names.WORKER: {"active": 1}, "ps": {"active": 1}},
    )
    assert message(seen(found)) == "Role ps runs with 1 of 2 replicas, and needs at least 2."


def test_a_suspended_application_says_how_it_goes_on() -> None:
    found = job(state="Suspended", conditions=[condition("Suspended", "ElasticJob app-kx3p is suspended.")])
    assert message(seen(found)) == (
        "ElasticJob app-kx3p is suspended. It goes on after: tidewater job resume app-kx3p -n training"
    )


def test_a_failed_application_says_why_and_which_replica_failed_first() -> None:
    told = "ElasticJob app-kx3p has failed because 2 of 3 pods failed for good."
    found = job(state="Failed", restarts=4, conditions=[condition("Failed", told), condition("Running", "x")])
    pods = [
        pod("app-kx3p", 0, **ended(1, finished="2026-03-01T12:00:31Z")),
        pod("app-kx3p", 1, **ended(3, finished="2026-03-01T12:00:30Z")),
        pod("app-kx3p", 2),
    ]
    answer = described(seen(found, pods, {"app-kx3p-worker-1": ["KeyError: 'x'"]}), ID)
    assert (answer.state, answer.num_restarts) == (AppState.FAILED, 4)
    assert answer.msg == f"{told} Replica 1 of role trainer: pod app-kx3p-worker-1 exited with code 3."
    error = json.loads(answer.structured_error_msg)
    assert error["message"]["errorCode"] == 3
    assert error["message"]["message"].endswith("\n| KeyError: 'x'")
    assert (error["role"], error["replica"]) == ("trainer", 1)


def test_restarts_are_those_of_the_whole_application_if_it_is_restarted_as_a_whole() -> None:
    assert described(seen(job(state="Running", restarts=2)), ID).num_restarts == 2
    assert described(seen(job(state="Running", restarts=2, jobRestarts=5)), ID).num_restarts == 5


@pytest.mark.parametrize(("limit", "restarts"), [(3, 2), (4, 3)])
def test_the_failure_with_which_a_job_has_failed_is_no_restart(limit: int, restarts: int) -> None:
    found = replace(job(state="Failed", restarts=3), spec=replace(job().spec, backoff_limit=limit))
    assert described(seen(found), ID).num_restarts == restarts


@pytest.mark.parametrize(("state", "restarts"), [("Suspended", 4), ("Failed", 5)])
def test_pods_that_left_for_a_suspension_have_not_been_restarted(state: str, restarts: int) -> None:
    assert described(seen(job(cancelled=True, state=state, jobRestarts=5)), ID).num_restarts == restarts
    assert described(seen(job(state="Suspended", jobRestarts=0)), ID).num_restarts == 0


def test_each_replica_has_its_state_and_where_it_is() -> None:
    pods = [
        pod("app-kx3p", 2, **ended(0)),
        pod("app-kx3p", 0),
        pod("app-kx3p", 1, phase="Pending", podIP="", containerStatuses=[]),
    ]
    (found,) = described(seen(job(state="Running"), pods), ID).roles_statuses
    assert [(each.id, each.state, each.hostname) for each in found.replicas] == [
        (0, AppState.RUNNING, "app-kx3p-worker-0.app-kx3p.training.svc"),
        (1, AppState.PENDING, ""),
        (2, AppState.SUCCEEDED, "app-kx3p-worker-2.app-kx3p.training.svc"),
    ]


def test_a_replica_without_a_pod_is_pending_while_it_is_wanted() -> None:
    running = described(seen(job(state="Running", desired=2), [pod("app-kx3p", 0)]), ID).roles_statuses[0]
    assert [(each.id, each.state) for each in running.replicas] == [(0, AppState.RUNNING), (1, AppState.PENDING)]
    for over in (job(state="Succeeded", desired=3), job(cancelled=True, state="Suspended")):
        assert described(seen(over), ID).roles_statuses[0].replicas == []


def test_a_failed_replica_of_a_running_application_has_its_error() -> None:
    answer = described(seen(job(state="Running"), [pod("app-kx3p", 0, **ended(7))]), ID)
    replica = answer.roles_statuses[0].replicas[0]
    assert json.loads(replica.structured_error_msg)["message"]["errorCode"] == 7
    assert answer.structured_error_msg == NONE


def test_a_replacement_counts_and_not_what_it_replaces() -> None:
    old, new = pod("app-kx3p", 0, **ended(1)), pod("app-kx3p", 0)
    old["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z"
    new["metadata"]["creationTimestamp"] = "2026-03-01T12:05:00Z"
    (found,) = described(seen(job(state="Running", desired=1, wanted=1), [new, old]), ID).roles_statuses
    assert [each.state for each in found.replicas] == [AppState.RUNNING]


def test_the_application_comes_back_with_all_of_its_fields() -> None:
    given = app(role(args=["a"], env={"b": "c"}), role("ps", num_replicas=2))
    assert described(seen(job(given, state="Running")), ID).roles == given.roles


def test_a_job_that_torchx_did_not_submit_is_described_as_far_as_it_says() -> None:
    container = {
        "name": "c",
        "image": "img",
        "command": ["train"],
        "args": ["-x"],
        "env": [{"name": "A", "value": "b"}],
    }
    found = codec.job_of(
        {
            "metadata": {"name": "digits", "namespace": "training"},
            "spec": {
                "rdzvEndpoint": "etcd:2379",
                "minReplicas": 1,
                "maxReplicas": 4,
                "replicaSpecs": {
                    "PS": {"template": {"spec": {"containers": [container]}}},
                    names.WORKER: {"replicas": 2, "template": {"spec": {"containers": [container]}}},
                },
            },
            "status": {"state": "Running"},
        }
    )
    worker, ps = described(seen(found), "training:digits").roles
    assert (worker.name, worker.image, worker.entrypoint, worker.args) == ("worker", "img", "train", ["-x"])
    assert (worker.min_replicas, worker.num_replicas, worker.env) == (1, 4, {"A": "b"})
    assert (ps.name, ps.num_replicas) == ("ps", 1)
