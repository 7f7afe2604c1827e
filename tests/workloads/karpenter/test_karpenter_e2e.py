"""Karpenter's objects against a real API server with the definitions of Karpenter's charts, rendered by the real helm.

The API server checks schema and rules (CEL) as on a cluster. There is no Karpenter, so nothing acts on the objects.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

import settings
from scripts import toolchain
from tests import facts, graph
from tests.control_plane import NO_PROXY, Plane, PlaneError, await_definitions, running
from tests.controller.fakes import karpenter as fakes
from tidewater.contract.devices import NAMESPACE
from workloads import karpenter
from workloads.devices import check, plugin
from workloads.devices.in_pod import gpus

pytestmark = pytest.mark.e2e

Object = dict[str, Any]

SITE = karpenter.Site("tidewater-dev-surge-node", ["subnet-0a", "subnet-0b"], "sg-0a", "/dev/xvda")
KINDS = {
    "gpus": {},
    "spot": {"capacityType": "SPOT"},
    "cpus": {"instanceTypes": ["m5.large"], "gpusPerWorker": 0},
    "a-list-of-types": {"surgeInstanceTypes": ["g5.xlarge", "g5.2xlarge"]},
    "a-window": {"maintenanceWindow": "Sat 22:30 4h"},
    "no-surge-nodes": {"minWorkers": 8, "workers": 8, "maxWorkers": 8},
    "no-core": {"minWorkers": 0, "workers": 0},
}


def parsed(**changes: Any) -> tuple[settings.Settings, settings.Surge]:
    """The defaults with some keys changed, and the surge nodes."""
    stack = facts.parsed({**graph.defaults(), **changes})
    assert stack.surge is not None
    return stack, stack.surge


def objects(**changes: Any) -> list[Object]:
    """The EC2NodeClass and the NodePool."""
    stack, surge = parsed(**changes)
    return [
        karpenter.node_class_manifest(stack, surge, SITE),
        karpenter.node_pool_manifest(stack, surge),
    ]


def rendered(chart: str, values: Object, folder: Path) -> list[Object]:
    """The objects that helm makes of one of Karpenter's charts."""
    file = folder / f"{chart}.json"
    file.write_text(json.dumps(values))
    command = [str(toolchain.binary("helm")), "template", chart, str(toolchain.charts() / chart)]
    options = ["--namespace", "kube-system", "--values", str(file)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """An API server with Karpenter's definitions."""
    folder = tmp_path_factory.mktemp("karpenter")
    with running(folder) as found:
        found.apply(*rendered("karpenter-crd", {}, folder))
        await_definitions(found.kubectl)
        yield found


def create(plane: Plane, wanted: Object) -> None:
    """Have the API server check an object, with unknown fields as errors; nothing is stored."""
    plane.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(wanted))


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS.keys())
def test_the_api_server_accepts_what_the_program_makes(plane: Plane, changes: Object) -> None:
    for wanted in objects(**changes):
        create(plane, wanted)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        pytest.param(("disruption", "budgets", 0, "reasons"), ["Bored"], "reasons", id="unknown-reason"),
        pytest.param(("disruption", "consolidateAfter"), "soon", "consolidateAfter", id="bad-duration"),
        pytest.param(("template", "spec", "requirements", 0, "operator"), "Is", "operator", id="unknown-operator"),
        pytest.param(("limits",), {"nodes": "many"}, "nodes", id="bad-limit"),
    ],
)
def test_the_api_server_would_notice_a_mistake(plane: Plane, path: tuple[Any, ...], value: object, named: str) -> None:
    _, pool = objects(maintenanceWindow="Sat 22:30 4h")
    place: Any = pool["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(PlaneError, match=named):
        create(plane, pool)


def test_the_chart_runs_the_controller_as_the_settings_say(tmp_path: Path) -> None:
    stack, surge = parsed(karpenterImage="hub.example:5000/karpenter:1.14.0")
    args = karpenter.KarpenterArgs(stack, surge, "the-queue", "kube-system", "karpenter")
    made = rendered("karpenter", karpenter.controller_values(args), tmp_path)
    (deployment,) = (each for each in made if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert deployment["spec"]["replicas"] == 2
    assert container["image"] == "hub.example:5000/karpenter:1.14.0"
    assert (environment["CLUSTER_NAME"], environment["INTERRUPTION_QUEUE"]) == ("tidewater-dev", "the-queue")
    assert pod["serviceAccountName"] == "karpenter"
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "tidewater.dev/node-role": "system"}
    assert {each["metadata"]["name"] for each in made if each["kind"] == "ServiceAccount"} == {"karpenter"}


def test_the_charts_definitions_are_those_of_the_objects(tmp_path: Path) -> None:
    definitions = rendered("karpenter-crd", {}, tmp_path)
    served = {
        (f"{each['spec']['group']}/{version['name']}", each["spec"]["names"]["kind"])
        for each in definitions
        for version in each["spec"]["versions"]
        if version["served"]
    }
    assert {(each["apiVersion"], each["kind"]) for each in objects()} <= served


@pytest.fixture
def checker(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gpus.Cluster:
    """The API server as the program in the pod of the GPUs' check reaches it, with the rights of the check."""
    for name, value in NO_PROXY.items():
        monkeypatch.setenv(name, value)
    plane.apply(plugin.namespace_manifest(), *check.access_manifests(karpenter=True))
    (tmp_path / "token").write_text(plane.kubectl("create", "token", check.NAME, "-n", NAMESPACE).strip())
    (tmp_path / "namespace").write_text(NAMESPACE)
    (tmp_path / "ca.crt").write_bytes((plane.site.folder / "pki" / "ca.crt").read_bytes())
    return gpus.Cluster("tidewater.dev/node-role=worker", tmp_path, plane.site.endpoint)


def apply_refused_claim(plane: Plane) -> None:
    """Make a NodeClaim as Karpenter does, and its event about it when EC2 has no capacity."""
    event = {**fakes.short(fakes.NO_CAPACITY), "apiVersion": "v1", "kind": "Event", "type": "Warning"}
    event["lastTimestamp"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    event["metadata"]["name"] = "workers-x7k2p.short"
    spec = {"nodeClassRef": {"group": karpenter.AWS, "kind": "EC2NodeClass", "name": "workers"}, "requirements": []}
    metadata = {"name": "workers-x7k2p", "labels": {"tidewater.dev/node-role": "worker"}}
    plane.apply({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": spec}, event)


def test_the_check_of_the_gpus_has_the_rights_that_it_needs_and_no_more(plane: Plane, checker: gpus.Cluster) -> None:
    apply_refused_claim(plane)
    assert checker.nodes() == []
    said = checker.why_no_node()
    assert said.trouble
    assert said.text.startswith("Karpenter: InsufficientCapacityError: insufficient capacity, with fleet error(s), ")
    gpus.Speaker(checker, check.NAME, "uid-1").say("WaitingForNode", said)
    (made,) = json.loads(plane.kubectl("get", "events", "-n", NAMESPACE, "-o", "json"))["items"]
    assert (made["type"], made["message"], made["involvedObject"]["uid"]) == ("Warning", said.text, "uid-1")
    for path in ("/api/v1/secrets", "/api/v1/events", "/api/v1/namespaces/tidewater-devices/pods"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            checker.ask(path)
