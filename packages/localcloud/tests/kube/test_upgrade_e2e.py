"""A real control plane goes from one version of Kubernetes to the next while its nodes and pods go on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from localcloud import kube, tools
from localcloud.errors import ToolMissing

from packages.localcloud.tests.kube.harness import DRIVER_KEY, READY_SECONDS, node_spec, running_cluster, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

OLD, NEW = "1.34", tools.KUBERNETES


def sleeper(name: str, node: str) -> dict[str, Any]:
    container = {"name": "sleep", "image": "localcloud/shell:1", "command": ["sleep", "infinity"]}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_an_upgrade_keeps_objects_and_pods_and_nodes_follow_one_by_one(tmp_path: Path) -> None:
    with running_cluster(tmp_path, OLD) as made:
        first, second = made.nodes

        def versions() -> dict[str, str]:
            nodes = json.loads(made.kubectl("get", "nodes", "-o", "json"))["items"]
            return {node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes}

        def state(pod: str) -> tuple[str, str, int]:
            found = json.loads(made.kubectl("get", "pod", pod, "-o", "json"))
            (container,) = found["status"]["containerStatuses"]
            return found["metadata"]["uid"], found["status"]["phase"], container["restartCount"]

        made.apply(sleeper("before", first.spec.name))
        made.kubectl("wait", "--for=condition=Ready", "pod/before", f"--timeout={READY_SECONDS}s")
        was = state("before")

        with pytest.raises(ToolMissing):
            made.plane.upgrade("1.0", time.monotonic() + READY_SECONDS)
        assert json.loads(made.kubectl("get", "--raw", "/version"))["minor"] == OLD.partition(".")[2]

        made.plane.upgrade(NEW, time.monotonic() + READY_SECONDS)
        assert json.loads(made.kubectl("get", "--raw", "/version"))["minor"] == NEW.partition(".")[2]
        assert all(version.startswith(f"v{OLD}.") for version in versions().values())
        assert state("before") == was

        fresh = kube.Node(made.instance, made.supervisor, made.plane, node_spec(2, NEW), DRIVER_KEY)
        made.nodes.append(fresh)
        fresh.start()
        wait_for("the new node Ready", fresh.ready)
        assert versions()[fresh.spec.name].startswith(f"v{NEW}.")
        made.apply(sleeper("after", fresh.spec.name))
        made.kubectl("wait", "--for=condition=Ready", "pod/after", f"--timeout={READY_SECONDS}s")

        made.plane.drain(second.spec.name, time.monotonic() + READY_SECONDS)
        second.stop()
        made.plane.delete_node(second.spec.name)
        wait_for("the old node gone", lambda: second.spec.name not in versions())
        assert state("before") == was
