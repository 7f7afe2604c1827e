"""What each launcher adds to a worker's containers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controller.fakes import jobs
from tidewater.contract import env
from tidewater.controller.objects import launched
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.model import ElasticJob

Container = dict[str, Any]

TRAINER: Container = {"name": names.WORKER_CONTAINER, "image": "i", "args": ["train.py", "--epochs=3"]}
SIDECAR: Container = {"name": "sidecar", "image": "s", "args": ["--serve"]}


def variables(container: Container) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_an_old_manifest_gets_the_old_flags_before_the_arguments_of_every_container() -> None:
    flags = ["--rdzv_backend=etcd", "--rdzv_endpoint=etcd-service:2379", "--rdzv_id=imagenet", "--nnodes=1:3"]
    trainer, sidecar = launched([TRAINER, SIDECAR], jobs.job())
    assert trainer["args"] == [*flags, "train.py", "--epochs=3"]
    assert sidecar["args"] == [*flags, "--serve"]


def test_todays_torchrun_gets_todays_flags_in_the_container_that_trains() -> None:
    trainer, sidecar = launched([TRAINER, SIDECAR], jobs.job(launcher="torchrun", rdzvBackend="etcd-v2"))
    assert trainer["args"] == [
        "--rdzv-backend=etcd-v2",
        "--rdzv-endpoint=etcd-service:2379",
        "--rdzv-id=imagenet-uid-of-imagenet",
        "--nnodes=1:3",
        "train.py",
        "--epochs=3",
    ]
    assert sidecar["args"] == ["--serve"]


def test_the_only_container_trains_whatever_its_name() -> None:
    (container,) = launched([{"name": "main", "image": "i"}], jobs.job(launcher="torchrun"))
    assert container["args"][0] == "--rdzv-backend=c10d"


def test_this_projects_trainer_gets_its_environment() -> None:
    trainer, sidecar = launched([TRAINER, SIDECAR], jobs.job(launcher="tidewater"))
    found = variables(trainer)
    assert found[env.JOB] == "imagenet"
    assert found[env.ETCD] == "http://etcd-service:2379"
    assert (found[env.MIN_WORKERS], found[env.MAX_WORKERS]) == ("1", "3")
    assert found["PYTHONHASHSEED"] == "0", "otherwise a worker starts its program twice"
    assert found[env.WORKER] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert found[env.HOST] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert trainer["args"] == TRAINER["args"]
    assert sidecar == SIDECAR


def test_the_users_own_variables_win() -> None:
    own = [{"name": env.ETCD, "value": "https://etcd:2379"}, {"name": "SEED", "value": "7"}]
    (container,) = launched([{**TRAINER, "env": own}], jobs.job(launcher="tidewater"))
    assert [each["value"] for each in container["env"] if each["name"] == env.ETCD] == ["https://etcd:2379"]
    assert container["env"][-2:] == own


@pytest.mark.parametrize("endpoint", ["https://etcd:2379", "http://a:1,http://b:1"])
def test_an_endpoint_with_a_scheme_stays_as_it_is(endpoint: str) -> None:
    (container,) = launched([TRAINER], jobs.job(launcher="tidewater", rdzvEndpoint=endpoint))
    assert variables(container)[env.ETCD] == endpoint


def test_no_launcher_adds_nothing() -> None:
    assert launched([TRAINER, SIDECAR], jobs.job(launcher="none")) == [TRAINER, SIDECAR]


def test_the_bounds_are_those_that_the_job_has_by_default() -> None:
    made = jobs.manifest(replicas=4)
    del made["spec"]["minReplicas"], made["spec"]["maxReplicas"]
    assert launched([TRAINER], read(made))[0]["args"][3] == "--nnodes=4:4"


def test_the_annotation_chooses_the_launcher_of_an_old_manifest() -> None:
    made = jobs.manifest()
    made["metadata"]["annotations"] = {names.ANNOTATION_LAUNCHER: "none"}
    assert launched([TRAINER], read(made)) == [TRAINER]


def read(manifest: jobs.Manifest) -> ElasticJob:
    return codec.job_of(manifest)


@pytest.mark.parametrize(("index", "machine", "replica"), [(0, "0", 0), (2, "2", 0), (3, "0", 3), (7, "1", 6)])
def test_a_pod_knows_its_place_in_its_replica(index: int, machine: str, replica: int) -> None:
    several = jobs.job(launcher="tidewater", workersPerReplica=3)
    trainer, sidecar = launched([TRAINER, SIDECAR], several, index)
    found = variables(trainer)
    assert (found[env.SHARD_NODES], found[env.SHARD_NODE]) == ("3", machine)
    assert found[env.REPLICA] == f"imagenet-worker-{replica}"
    assert (found[env.MIN_WORKERS], found[env.MAX_WORKERS]) == ("1", "3"), "they count replicas"
    assert sidecar == SIDECAR
    (alone,) = launched([TRAINER], jobs.job(launcher="tidewater"), index)
    assert variables(alone).keys().isdisjoint({env.SHARD_NODES, env.SHARD_NODE, env.REPLICA})
