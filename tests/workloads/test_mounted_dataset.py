"""A dataset that stays in S3, over the whole program."""

from __future__ import annotations

import json
from typing import Any

import pytest

import settings
from settings import versions
from tests import graph

FOLDER = "s3://pictures/animals/v2/"
ADDON = "aws:eks/addon:Addon"
VOLUME = "kubernetes:core/v1:PersistentVolume"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
JOB = "kubernetes:batch/v1:Job"
NAME = settings.Dataset.of(FOLDER).name


def deployed(**changes: Any) -> graph.Graph:
    return graph.deploy({**graph.stack_config("Pulumi.aws-dev.yaml.example"), **changes}, stack="dev")


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    return deployed(dataset=FOLDER, datasetStorage="s3")


def worker(made: graph.Graph) -> dict[str, Any]:
    (job,) = [each for each in made.resources if each.type.endswith(":ElasticJob")]
    (replicas,) = job.inputs["spec"]["replicaSpecs"].values()
    spec: dict[str, Any] = replicas["template"]["spec"]
    return spec


def test_the_volume_is_the_folder_and_read_only(made: graph.Graph) -> None:
    spec = made.one(VOLUME, NAME).inputs["spec"]
    assert spec["csi"]["driver"] == "s3.csi.aws.com"
    assert spec["csi"]["volumeAttributes"] == {"bucketName": "pictures"}
    assert {"read-only", "allow-other", f"region {graph.REGION}", "prefix animals/v2/"} <= set(spec["mountOptions"])
    assert spec["claimRef"]["name"] == made.one(CLAIM, NAME).inputs["metadata"]["name"]
    assert spec["accessModes"] == made.one(CLAIM, NAME).inputs["spec"]["accessModes"] == ["ReadOnlyMany"]
    assert made.one(CLAIM, NAME).inputs["spec"]["volumeName"] == made.one(VOLUME, NAME).inputs["metadata"]["name"]


def test_workers_read_it_where_it_is_mounted(made: graph.Graph) -> None:
    spec = worker(made)
    (volume,) = [each for each in spec["volumes"] if each["name"] == "dataset"]
    assert volume["persistentVolumeClaim"] == {"claimName": NAME, "readOnly": True}
    (container,) = spec["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "dataset"]
    assert mount["readOnly"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["TIDEWATER_DATA"] == mount["mountPath"]


def test_no_job_copies_it(made: graph.Graph) -> None:
    assert not [each for each in made.all(JOB) if "dataset" in each.name]
    assert [each for each in deployed().all(JOB) if "dataset" in each.name]


def test_only_the_driver_may_read_it_and_only_the_folder(made: graph.Graph) -> None:
    role = made.one("aws:iam/role:Role", "-s3-csi")
    (trust,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    assert trust["Condition"]["StringEquals"]["aws:RequestTag/kubernetes-service-account"] == "s3-csi-driver-sa"
    listing, reading = json.loads(made.one("aws:iam/rolePolicy:RolePolicy", "-s3-csi").inputs["policy"])["Statement"]
    assert (listing["Action"], listing["Resource"]) == ("s3:ListBucket", "arn:aws:s3:::pictures")
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "animals/v2/*"}}
    assert (reading["Action"], reading["Resource"]) == ("s3:GetObject", "arn:aws:s3:::pictures/animals/v2/*")
    trainer = made.one("aws:iam/rolePolicy:RolePolicy", "-trainer").inputs["policy"]
    assert "pictures" not in trainer


def test_the_driver_gets_its_role_before_its_pods_start(made: graph.Graph) -> None:
    addon = made.one(ADDON, "aws-mountpoint-s3-csi-driver")
    identity = made.one("aws:eks/podIdentityAssociation:PodIdentityAssociation", "-s3-csi")
    assert addon.inputs["addonVersion"] == versions.MOUNTPOINT
    assert (identity.inputs["namespace"], identity.inputs["serviceAccount"]) == ("kube-system", "s3-csi-driver-sa")
    assert made.needs(addon, identity)


def test_workers_come_after_claim_and_driver(made: graph.Graph) -> None:
    (job,) = [each for each in made.resources if each.type.endswith(":ElasticJob")]
    assert made.needs(job, made.one(CLAIM, NAME))
    assert made.needs(job, made.one(ADDON, "aws-mountpoint-s3-csi-driver"))


def test_another_folder_has_a_claim_of_its_own() -> None:
    # A claim in use is not deleted: Pulumi would wait for the workers, which wait for the new one.
    assert settings.Dataset.of("s3://pictures/animals/v3/").name != NAME


def test_a_folder_has_a_bucket_and_a_prefix() -> None:
    assert settings.Dataset.of(FOLDER).folder == ("pictures", "animals/v2/")


def test_without_the_option_nothing_of_it_is_there() -> None:
    made = deployed()
    assert not [each for each in made.resources if "s3-csi" in each.name]
    assert not [each for each in worker(made)["volumes"] if each["name"] == "dataset"]
