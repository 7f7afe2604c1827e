"""A job from flags in a stack's namespace has pods that the namespace accepts and that its nodes are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.cli.fake import FakeCluster
from tidewater.contract import labels
from tidewater.contract.stack import CONFIG_MAP, Facts
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import Forbidden, Unreachable
from tidewater.kube.kinds import CONFIG_MAPS

FACTS = Facts("bucket", "trainer", "fetch", "image", "http://etcd.vision.svc:2379", "data", "1000")
SUBMIT = ("job", "submit", "digits", "--image", "i", "--script", "t.py")


@pytest.fixture
def stack(cluster: FakeCluster) -> FakeCluster:
    cluster.put(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP, "namespace": "vision"}, "data": FACTS.data})
    return cluster


def pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]
    return found


def test_pods_are_without_privileges_on_worker_nodes_with_the_shared_files(run: Run, stack: FakeCluster) -> None:
    assert run(*SUBMIT, "-n", "vision", "--env", "HOME=/data/home").exit_code == 0
    made = pod(stack.get(JOBS, "digits", "vision"))
    assert made["securityContext"]["runAsUser"] == 1000
    assert made["serviceAccountName"] == "trainer"
    assert made["nodeSelector"] == {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
    assert labels.TAINT_WORKER in {each["key"] for each in made["tolerations"]}
    (container,) = made["containers"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert made["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    assert {each["name"]: each["value"] for each in container["env"]} == {"HOME": "/data/home", "USER": "tidewater"}


def test_a_lustre_file_system_of_the_stack_is_mounted_too(run: Run, stack: FakeCluster) -> None:
    facts = replace(FACTS, lustre_claim="lustre")
    stack.put(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP, "namespace": "vision"}, "data": facts.data})
    assert run(*SUBMIT, "-n", "vision").exit_code == 0
    made = pod(stack.get(JOBS, "digits", "vision"))
    assert {"name": "lustre", "mountPath": "/lustre"} in made["containers"][0]["volumeMounts"]
    assert {"name": "lustre", "persistentVolumeClaim": {"claimName": "lustre"}} in made["volumes"]


def test_a_job_runs_on_the_nodes_of_the_pool_that_it_names(run: Run, stack: FakeCluster) -> None:
    assert run(*SUBMIT, "-n", "vision", "--pool", "big").exit_code == 0
    made = pod(stack.get(JOBS, "digits", "vision"))
    assert made["nodeSelector"] == {labels.POOL: "big"}
    assert labels.TAINT_WORKER in {each["key"] for each in made["tolerations"]}


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        (("--launcher", "tidewater"), FACTS.etcd),
        (("--launcher", "torchelastic"), FACTS.etcd),
        (("--launcher", "tidewater", "--rdzv-endpoint", "own:2379"), "own:2379"),
        ((), "digits-worker-0:29400"),
    ],
)
def test_workers_meet_in_the_stacks_etcd_where_they_need_one(
    run: Run, stack: FakeCluster, flags: tuple[str, ...], where: str
) -> None:
    assert run(*SUBMIT, "-n", "vision", *flags).exit_code == 0
    assert stack.get(JOBS, "digits", "vision")["spec"]["rdzvEndpoint"] == where


def test_code_from_this_machine_comes_along(run: Run, stack: FakeCluster, tmp_path: Any) -> None:
    (tmp_path / "t.py").write_text("")
    assert run(*SUBMIT, "-n", "vision", "--code", str(tmp_path)).exit_code == 0
    made = pod(stack.get(JOBS, "digits", "vision"))
    assert {each["name"] for each in made["volumes"]} > {"data"}
    assert len(made["containers"][0]["volumeMounts"]) == 2
    assert made["initContainers"]


def test_a_dry_run_prints_what_would_be_sent(run: Run, stack: FakeCluster) -> None:
    printed = yaml.safe_load(run(*SUBMIT, "-n", "vision", "--dry-run").stdout)
    assert not stack.sent
    run(*SUBMIT, "-n", "vision")
    ((_, sent),) = stack.sent
    assert pod(printed) == pod(sent)


@pytest.mark.parametrize("error", [None, Forbidden("no right"), Unreachable("nothing answers")])
def test_without_a_stack_that_can_be_asked_pods_are_as_the_flags_say(
    run: Run, cluster: FakeCluster, error: Forbidden | Unreachable | None
) -> None:
    if error:
        cluster.failures["get", CONFIG_MAPS.kind] = error
    printed = yaml.safe_load(run(*SUBMIT, "--dry-run").stdout)
    assert pod(printed).keys() == {"containers"}


def test_a_stack_of_another_version_is_named(run: Run, cluster: FakeCluster) -> None:
    cluster.put(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP, "namespace": "vision"}, "data": {"bucket": "b"}})
    refused = run(*SUBMIT, "-n", "vision")
    assert refused.exit_code == 2
    assert "ConfigMap tidewater in namespace vision says nothing of 'serviceAccount'" in refused.stderr


def test_all_containers_find_the_proxy_of_the_stack_and_a_person_can_name_another(
    run: Run, stack: FakeCluster, tmp_path: Path
) -> None:
    facts = replace(FACTS, http_proxy="http://proxy:3128", no_proxy=".svc")
    stack.put(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP, "namespace": "vision"}, "data": facts.data})
    (tmp_path / "t.py").write_text("")
    submit = ("job", "submit", "digits", "--image", "i", "--code", str(tmp_path), "--script", "t.py")
    assert run(*submit, "-n", "vision", "--env", "https_proxy=http://own:1").exit_code == 0
    made = pod(stack.get(JOBS, "digits", "vision"))
    (unpack,) = made["initContainers"]
    (trains,) = ({each["name"]: each["value"] for each in one["env"]} for one in made["containers"])
    assert {each["name"]: each["value"] for each in unpack["env"]} == facts.variables
    assert trains.items() >= {**facts.variables, "https_proxy": "http://own:1"}.items()
