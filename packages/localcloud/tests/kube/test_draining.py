"""Which pods a drain waits for, and what happens to the pods of a dead node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from localcloud.kube.client import Client
from localcloud.kube.draining import delete_node, evictable, orphan_status
from localcloud.kube.errors import ApiError

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def pod(phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", **metadata}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("given", "waited"),
    [
        pytest.param(pod(), True, id="running"),
        pytest.param(pod("Succeeded"), False, id="finished"),
        pytest.param(pod("Failed", deletionTimestamp="2026-01-01T00:00:00Z"), True, id="still being removed"),
        pytest.param(pod(ownerReferences=[{"kind": "DaemonSet"}]), False, id="a DaemonSet's"),
        pytest.param(pod(ownerReferences=[{"kind": "Job"}]), True, id="a Job's"),
        pytest.param(pod(annotations={"kubernetes.io/config.mirror": "x"}), False, id="a mirror"),
    ],
)
def test_a_drain_waits_for_running_pods_but_not_for_those_of_daemon_sets(given: dict[str, Any], waited: bool) -> None:
    assert evictable(given) is waited


def test_pods_of_a_lost_node_fail_with_the_disruption_condition() -> None:
    status = orphan_status(pod(), NOW)["status"]
    assert status["phase"] == "Failed"
    assert status["conditions"][0]["type"] == "DisruptionTarget"
    assert status["conditions"][0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"


def test_a_finished_pod_of_a_lost_node_keeps_its_phase() -> None:
    assert "phase" not in orphan_status(pod("Succeeded"), NOW)["status"]


class FakeClient(Client):
    """Has one pod, and records the calls."""

    def __init__(self, patch_status: int) -> None:
        self.calls: list[str] = []
        self._patch_status = patch_status

    def get(self, path: str) -> dict[str, Any]:
        return {"items": [pod()]}

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self._patch_status != 200:
            raise ApiError(self._patch_status, "no")
        self.calls.append(f"patch {path}")
        return {}

    def delete(self, path: str, options: dict[str, Any] | None = None) -> bool:
        self.calls.append(f"delete {path}")
        return True


def test_deleting_a_node_marks_and_deletes_its_pods() -> None:
    client = FakeClient(200)
    delete_node(client, "node")
    assert client.calls == [
        "delete /api/v1/nodes/node",
        "patch /api/v1/namespaces/n/pods/p/status",
        "delete /api/v1/namespaces/n/pods/p",
    ]


def test_a_deleted_pod_is_ignored_but_a_refusal_is_an_error() -> None:
    delete_node(FakeClient(404), "node")
    with pytest.raises(ApiError):
        delete_node(FakeClient(403), "node")
