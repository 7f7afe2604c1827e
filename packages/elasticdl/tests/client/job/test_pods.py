"""The pod templates of master, parameter servers and workers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from elasticdl.client.flags.request import Ship
from elasticdl.client.job.pods import Place, Process, shipped, template

from packages.elasticdl.tests.client.seed import CODE, FACTS, asked
from tidewater.contract import labels
from tidewater.contract.stack import Facts

STACK = Place("training", FACTS, CODE)
ELSEWHERE = Place("default")
PROCESS = Process(["python3", "-m", "elasticdl.worker"], {"OWN": "1"})


def pod(kind: str, place: Place = STACK, /, **changed: str) -> dict[str, Any]:
    found: dict[str, Any] = template(kind, PROCESS, asked(**changed), place)["spec"]
    return found


def container(kind: str, place: Place = STACK, /, **changed: str) -> dict[str, Any]:
    (found,) = pod(kind, place, **changed)["containers"]
    return dict(found)


def env(found: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in found["env"]}


@pytest.mark.parametrize("kind", ["master", "ps", "worker"])
def test_a_stacks_namespace_gets_pods_without_privileges(kind: str) -> None:
    found = pod(kind)
    assert found["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for each in (*found["initContainers"], *found["containers"]):
        context = each["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert found["serviceAccountName"] == "trainer"
    assert found["automountServiceAccountToken"] is False


def test_workers_run_on_worker_nodes_and_the_others_where_they_fit() -> None:
    worker, master, server = pod("worker"), pod("master"), pod("ps")
    assert worker["nodeSelector"] == {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
    assert "nodeSelector" not in master
    assert "nodeSelector" not in server
    (preferred,) = master["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (stays,) = preferred["preference"]["matchExpressions"]
    assert (stays["key"], stays["values"]) == (labels.NODE_ROLE, [labels.NODE_ROLE_SYSTEM])
    taint = {"key": labels.TAINT_WORKER, "operator": "Exists", "effect": "NoSchedule"}
    assert all(taint in each["tolerations"] for each in (worker, master, server))


@pytest.mark.parametrize("kind", ["master", "ps"])
def test_master_and_servers_run_in_a_pool_only_if_the_command_line_chooses_it(kind: str) -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (term,) = pod(kind)["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "tidewater.dev/pool", "operator": "DoesNotExist"}]}
    chosen = {"nodeSelector": {"tidewater.dev/pool": "big", "tidewater.dev/node-role": "pool"}}
    found = pod(kind, cluster_spec_json=json.dumps({"pod_spec": chosen}))
    assert found["nodeSelector"] == chosen["nodeSelector"]
    assert required not in found["affinity"]["nodeAffinity"]
    assert pod("worker", cluster_spec_json=json.dumps({"pod_spec": chosen}))["nodeSelector"] == chosen["nodeSelector"]
    assert required in pod(kind, cluster_spec_json=json.dumps({"worker_spec": chosen}))["affinity"]["nodeAffinity"]


def test_a_pod_with_gpus_tolerates_their_nodes_and_sees_its_own() -> None:
    gpus = {"worker_resource_request": "cpu=2,gpu=1", "worker_resource_limit": "cpu=2,gpu=1"}
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod("worker", **gpus)[
        "tolerations"
    ]
    assert "NVIDIA_VISIBLE_DEVICES" not in env(container("worker", **gpus))
    assert env(container("worker"))["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_code_and_zoo_are_unpacked_before_the_process_starts() -> None:
    found = pod("ps")
    fetch, unpack = found["initContainers"]
    assert CODE in fetch["command"]
    assert (fetch["image"], unpack["image"]) == ("aws-cli:1", "pytorch:2")
    (own,) = found["containers"]
    assert own["command"] == [
        "sh",
        "-c",
        'export PYTHONPATH="/elasticdl/packages${PYTHONPATH:+:$PYTHONPATH}"; exec "$@"',
        "elasticdl",
        "python3",
        "-m",
        "elasticdl.worker",
    ]
    assert own["workingDir"] == "/elasticdl/zoo"
    assert "/elasticdl" in [each["mountPath"] for each in own["volumeMounts"]]


@pytest.mark.parametrize(
    ("given", "facts", "what"),
    [
        ({}, FACTS, Ship.ALL),
        ({"image_name": "zoo:1"}, FACTS, Ship.CODE),
        ({"image_name": "zoo:1"}, None, Ship.NOTHING),
        ({"image_name": "base:1", "ship": "all"}, FACTS, Ship.ALL),
        ({"image_name": "whole:1", "ship": "nothing"}, FACTS, Ship.NOTHING),
    ],
)
def test_what_goes_with_a_job_depends_on_its_image(given: dict[str, str], facts: Facts | None, what: Ship) -> None:
    assert shipped(asked(**given).deployment, facts) is what


def test_with_the_zoo_in_the_image_only_code_is_unpacked() -> None:
    found = container("worker", Place("training", FACTS, CODE, zoo=False), image_name="zoo:1")
    assert "workingDir" not in found
    assert found["command"][:2] == ["sh", "-c"]


def test_elsewhere_the_pods_have_what_was_asked_for_and_nothing_else() -> None:
    found = pod("ps", ELSEWHERE, image_name="my:1")
    assert found.keys() == {"priorityClassName", "containers", "volumes"}
    assert found["containers"][0]["command"] == PROCESS.command
    assert "securityContext" not in found["containers"][0]
    assert "workingDir" not in found["containers"][0]


def test_images_are_those_of_the_kind_of_the_job_or_of_the_stack() -> None:
    own = {"image_name": "job:1", "worker_image": "worker:1", "ps_image": "ps:1"}
    assert [container(kind, **own)["image"] for kind in ("master", "ps", "worker")] == ["job:1", "ps:1", "worker:1"]
    assert container("worker", image_name="job:1")["image"] == "job:1"
    assert container("worker")["image"] == "pytorch:2"


def test_images_are_pulled_as_asked_or_as_kubernetes_does() -> None:
    assert container("ps")["imagePullPolicy"] == "Always"
    found = template("ps", PROCESS, asked(("image_pull_policy",)), STACK)["spec"]
    assert "imagePullPolicy" not in found["containers"][0]


def test_requests_and_limits_are_kubernetes() -> None:
    changed = {"worker_resource_request": "cpu=500m,disk=1Gi", "worker_resource_limit": "cpu=2500m,memory=1Gi,disk=1Gi"}
    found = container("worker", **changed)
    assert found["resources"] == {
        "requests": {"cpu": "500m", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "2500m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
    }
    assert env(found)["OMP_NUM_THREADS"] == "2"


def test_volumes_are_mounted_in_all_pods() -> None:
    text = "claim_name=c,mount_path=/data,sub_path=mnist;claim_name=c,mount_path=/all,read_only=true"
    for kind in ("master", "ps", "worker"):
        found = pod(kind, volume=text)
        assert {"name": "volume-0", "persistentVolumeClaim": {"claimName": "c"}} in found["volumes"]
        mounts = [each for each in found["containers"][0]["volumeMounts"] if each["name"] == "volume-0"]
        assert mounts == [
            {"name": "volume-0", "mountPath": "/data", "subPath": "mnist"},
            {"name": "volume-0", "mountPath": "/all", "readOnly": True},
        ]


def test_a_path_of_the_host_has_its_type() -> None:
    found = pod("ps", ELSEWHERE, image_name="my:1", volume="host_path=/h,mount_path=/data,type=Directory")
    assert found["volumes"] == [{"name": "volume-0", "hostPath": {"path": "/h", "type": "Directory"}}]


def test_a_stacks_file_system_is_there_unless_another_volume_is_asked_for() -> None:
    found = template("worker", PROCESS, asked(("volume",)), STACK)["spec"]
    assert {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}} in found["volumes"]
    assert {"name": "volume-0", "mountPath": "/data"} in found["containers"][0]["volumeMounts"]


def test_a_lustre_file_system_of_the_stack_is_there_too() -> None:
    place = replace(STACK, facts=replace(FACTS, lustre_claim="lustre"))
    found = template("worker", PROCESS, asked(("volume",)), place)["spec"]
    assert {"name": "volume-1", "persistentVolumeClaim": {"claimName": "lustre"}} in found["volumes"]
    assert {"name": "volume-1", "mountPath": "/lustre"} in found["containers"][0]["volumeMounts"]


def test_variables_of_the_command_line_win() -> None:
    found = container("worker", envs="OMP_NUM_THREADS=7,OWN=2,A=$(OWN),POD_NAME=x")
    assert {"name": "OMP_NUM_THREADS", "value": "7"} in found["env"]
    assert {"name": "OWN", "value": "2"} in found["env"]
    assert {"name": "A", "value": "$$(OWN)"} in found["env"]
    assert [each for each in found["env"] if each["name"] == "POD_NAME"] == [{"name": "POD_NAME", "value": "x"}]


def test_a_pod_knows_its_name_its_address_and_its_number() -> None:
    found = env(container("ps"))
    assert found["POD_NAME"] == "metadata.name"
    assert found["MY_POD_IP"] == "status.podIP"
    assert found["ELASTICDL_REPLICA_INDEX"] == "metadata.labels['replica-index']"


def test_pods_have_elasticdls_labels() -> None:
    metadata = template("ps", PROCESS, asked(), STACK)["metadata"]
    assert metadata["labels"] == {
        "app": "elasticdl",
        "elasticdl-job-name": "test-mnist",
        "elasticdl-replica-type": "ps",
    }


def test_additions_are_part_of_the_template() -> None:
    spec = '{"worker_spec": {"labels": {"team": "vision"}}}'
    assert template("worker", PROCESS, asked(cluster_spec_json=spec), STACK)["metadata"]["labels"]["team"] == "vision"


@pytest.mark.parametrize("kind", ["master", "ps", "worker"])
def test_pods_find_the_proxy_of_the_stack(kind: str) -> None:
    facts = replace(FACTS, http_proxy="http://proxy:3128", no_proxy=".svc")
    found = pod(kind, replace(STACK, facts=facts))
    for each in (found["initContainers"][0], *found["containers"]):
        assert env(each).items() >= facts.variables.items()
