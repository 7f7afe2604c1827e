"""Why a replica failed: exit code, reason, last lines, and as TorchX prints it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tidewater_torchx.observe.failures import LAST_LINES, Failure, failure_of, last_lines, structured
from torchx.specs import AppState, ReplicaStatus, RoleStatus
from torchx.specs.api import AppStatus

from packages.torchx.tests.doubles import KubernetesInMemory, ended, pod
from tidewater.elasticjob import names
from tidewater.kube.errors import error_of
from tidewater.kube.kinds import PODS

MOMENT = 1772366430  # FINISHED


def failure(**status: Any) -> Failure:
    found = failure_of(pod("app", **status))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="runs"),
        pytest.param(ended(0), id="has-succeeded"),
        pytest.param({"phase": "Pending", "containerStatuses": []}, id="waits-for-room"),
        pytest.param(
            {
                "phase": "Pending",
                "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            id="starts",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {"name": "c", "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}
                ]
            },
            id="was-started-again",
        ),
    ],
)
def test_nothing_is_wrong_with_a_pod_that(status: dict[str, Any]) -> None:
    assert failure_of(pod("app", **status)) is None


def test_an_exit_code() -> None:
    found = failure(**ended(3))
    assert (found.exit_code, found.container, found.moment) == (3, names.WORKER_CONTAINER, MOMENT)
    assert found.sentence == "pod app-worker-0 exited with code 3"


def test_more_memory_than_the_limit() -> None:
    assert failure(**ended(137, reason="OOMKilled")).sentence == "pod app-worker-0 exited with code 137 (OOMKilled)"


def test_an_eviction() -> None:
    found = failure(phase="Failed", containerStatuses=[], reason="Evicted", message="The node was low on memory.")
    assert found.sentence == "pod app-worker-0 failed (Evicted): The node was low on memory."
    assert found.ended


def test_a_container_before_the_one_that_trains() -> None:
    fetch = {"name": "fetch-code", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    waits = {"name": names.WORKER_CONTAINER, "state": {"waiting": {"reason": "PodInitializing"}}}
    found = failure(phase="Failed", initContainerStatuses=[fetch], containerStatuses=[waits])
    assert found.sentence == "container fetch-code of pod app-worker-0 exited with code 1"


def test_a_crash_that_the_kubelet_will_start_again() -> None:
    crashed = {
        "name": names.WORKER_CONTAINER,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 5}},
    }
    assert failure(containerStatuses=[crashed]).exit_code == 5


def test_an_image_that_cannot_be_pulled() -> None:
    waits = {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling "x"'}}}
    found = failure(phase="Pending", containerStatuses=[waits])
    assert found.sentence == 'pod app-worker-0 can\'t start (ImagePullBackOff): Back-off pulling "x"'
    assert not found.ended


def test_the_last_lines_are_those_of_the_log() -> None:
    cluster = KubernetesInMemory()
    cluster.put(PODS, pod("app", **ended(1)))
    cluster.write("app-worker-0", *(f"line {number}" for number in range(100)))
    found = last_lines(cluster, failure(**ended(1)), "training")
    assert found == tuple(f"line {number}" for number in range(100 - LAST_LINES, 100))


def test_a_log_that_cannot_be_read_has_no_lines() -> None:
    cluster = KubernetesInMemory()
    assert last_lines(cluster, failure(**ended(1)), "training") == ()
    cluster.put(PODS, pod("app", **ended(1)))
    cluster.failures["log", "Pod"] = error_of(500, "InternalError", "dial tcp: no route to host")
    assert last_lines(cluster, failure(**ended(1)), "training") == ()


def shown(error: str, state: AppState = AppState.FAILED) -> str:
    """Return what `torchx status` prints."""
    replica = ReplicaStatus(0, state, "trainer", "host", error)
    text: str = AppStatus(
        AppState.FAILED, roles=[RoleStatus("trainer", [replica])], structured_error_msg=error
    ).format()
    return text


def test_torchx_prints_the_exit_code_and_every_line() -> None:
    lines = ["Traceback (most recent call last):", "Exception: broken", "", "ValueError: x"]
    text = shown(structured(failure(**ended(3)), lines))
    assert "*trainer[0]:FAILED (exitcode: 3)" in text
    assert "pod app-worker-0 exited with code 3" in text
    assert all(f"| {line}" in text for line in lines)


def test_torchx_prints_a_replica_that_cannot_start() -> None:
    waits = {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": ""}}}
    text = shown(structured(failure(phase="Pending", containerStatuses=[waits]), ()), AppState.PENDING)
    assert "*trainer[0]:PENDING (exitcode: <N/A>)" in text
    assert "can't start (ImagePullBackOff)" in text


def test_programs_read_the_failure_as_json() -> None:
    found = json.loads(structured(failure(**ended(3)), ["x"], role="trainer", replica=0))
    assert found == {
        "message": {
            "message": "pod app-worker-0 exited with code 3\n| x",
            "errorCode": 3,
            "extraInfo": {"timestamp": MOMENT, "reason": "Error"},
        },
        "role": "trainer",
        "replica": 0,
    }
