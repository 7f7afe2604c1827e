"""A file system of FSx for Lustre that is there already, over the whole program."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

import settings
from infra.preflight import login
from tests import graph
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.vpc import existing_vpc
from tidewater.contract.stack import CONFIG_MAP
from workloads.storage import lustre_volume_manifest

ID = "fs-0123456789abcdef0"
ADDON = "aws:eks/addon:Addon"
VOLUME = "kubernetes:core/v1:PersistentVolume"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
JOB = "kubernetes:batch/v1:Job"
KEYS = {
    "lustre": {"fileSystemId": ID, "mountName": "abcdefgh"},
    "dataset": "/lustre/images",
    "checkpoints": "/lustre/runs",
}


def aws(arguments: tuple[str, ...]) -> login.Ended:
    if "fsx" not in arguments:
        return graph.aws(arguments)
    about = {"FileSystemType": "LUSTRE", "Lifecycle": "AVAILABLE", "VpcId": existing_vpc.VPC}
    found = {**about, "LustreConfiguration": {"MountName": "abcdefgh"}}
    return login.Ended(0, json.dumps({"FileSystems": [found]}))


def deployed(config: dict[str, Any], ask: graph.Ask) -> graph.Graph:
    return graph.run(functools.partial(graph.program, aws), {**graph.defaults(), **config}, ask=ask)


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    return deployed({**existing_vpc.CONFIG, **KEYS}, existing_vpc.ask)


@pytest.fixture(scope="module")
def without() -> graph.Graph:
    return deployed(existing_vpc.CONFIG, existing_vpc.ask)


def worker(made: graph.Graph) -> dict[str, Any]:
    (job,) = [each for each in made.resources if each.type.endswith(":ElasticJob")]
    (replicas,) = job.inputs["spec"]["replicaSpecs"].values()
    spec: dict[str, Any] = replicas["template"]["spec"]
    return spec


def test_the_volume_is_the_whole_file_system_for_readers_and_writers_and_stays(made: graph.Graph) -> None:
    spec = made.one(VOLUME, "lustre").inputs["spec"]
    assert spec["csi"] == {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": ID,
        "volumeAttributes": {"dnsname": f"{ID}.fsx.us-west-2.amazonaws.com", "mountname": "abcdefgh"},
    }
    assert (spec["accessModes"], spec["persistentVolumeReclaimPolicy"]) == (["ReadWriteMany"], "Retain")
    assert spec["mountOptions"] == ["flock"]
    claim = made.one(CLAIM, "lustre").inputs
    assert spec["claimRef"] == {"namespace": "training", "name": claim["metadata"]["name"]}
    assert claim["spec"]["volumeName"] == made.one(VOLUME, "lustre").inputs["metadata"]["name"]


def test_the_namespace_may_be_called_as_the_file_system() -> None:
    made = deployed({**existing_vpc.CONFIG, **KEYS, "namespace": "lustre"}, existing_vpc.ask)
    assert len({each.urn for each in made.resources}) == len(made.resources)


def test_in_china_its_name_is_in_the_domain_of_china() -> None:
    found = lustre_volume_manifest("v", "training", settings.Lustre(ID, "fsx"), "cn-north-1")
    assert found["spec"]["csi"]["volumeAttributes"]["dnsname"] == f"{ID}.fsx.cn-north-1.amazonaws.com.cn"


def test_workers_have_it_and_read_and_write_in_the_folders_that_are_named(made: graph.Graph) -> None:
    spec = worker(made)
    assert {"name": "lustre", "persistentVolumeClaim": {"claimName": "lustre"}} in spec["volumes"]
    (container,) = spec["containers"]
    assert {"name": "lustre", "mountPath": "/lustre"} in container["volumeMounts"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert (variables["TIDEWATER_DATA"], variables["TIDEWATER_CHECKPOINTS"]) == (
        "/lustre/images",
        "/lustre/runs/digits",
    )


def test_no_job_fills_the_folder_with_data(made: graph.Graph, without: graph.Graph) -> None:
    assert not [each for each in made.all(JOB) if "dataset" in each.name]
    assert [each for each in without.all(JOB) if "dataset" in each.name]


def test_workers_come_after_claim_and_driver_and_go_before_them(made: graph.Graph) -> None:
    (job,) = [each for each in made.resources if each.type.endswith(":ElasticJob")]
    assert made.needs(job, made.one(CLAIM, "lustre"))
    assert made.needs(job, made.one(ADDON, "aws-fsx-csi-driver"))
    assert made.one(VOLUME, "lustre").urn in job.replaced_with
    assert made.needs(made.one("kubernetes:core/v1:Namespace", "training"), made.one(VOLUME, "lustre"))


def test_only_the_driver_is_made_in_aws_without_a_role(made: graph.Graph, without: graph.Graph) -> None:
    def of_aws(each: graph.Graph) -> set[tuple[str, str]]:
        return {(found.type, found.name) for found in each.resources if found.type.startswith("aws:")}

    assert {kind for kind, _ in of_aws(made) - of_aws(without)} <= {ADDON, "aws:s3/bucketObjectv2:BucketObjectv2"}
    assert "serviceAccountRoleArn" not in made.one(ADDON, "aws-fsx-csi-driver").inputs


def test_tools_that_submit_jobs_find_the_claim(made: graph.Graph, without: graph.Graph) -> None:
    def facts(each: graph.Graph) -> dict[str, Any]:
        (found,) = [one for one in each.all("kubernetes:core/v1:ConfigMap") if one.name == f"configmap-{CONFIG_MAP}"]
        return dict(found.inputs["data"])

    assert facts(made)["lustreClaim"] == "lustre"
    assert "lustreClaim" not in facts(without)


def test_on_a_cluster_of_others_the_driver_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(existing_cluster.ADDONS, "aws-fsx-csi-driver", "")
    made = deployed({**existing_cluster.CONFIG, **KEYS}, existing_cluster.ask)
    assert not made.all(ADDON)
    assert made.one(CLAIM, "lustre")


def test_without_the_key_nothing_of_it_is_there(without: graph.Graph) -> None:
    assert not [each for each in without.resources if "lustre" in each.name or "fsx" in each.name]
    assert not [each for each in worker(without)["volumes"] if each["name"] == "lustre"]
