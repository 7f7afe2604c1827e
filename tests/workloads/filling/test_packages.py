"""The job that installs the packages of people's scripts, and how workers see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import graph
from tidewater.contract import env
from tidewater.elasticjob import names
from workloads import manifests
from workloads.filling import packages

JOB = "kubernetes:batch/v1:Job"
ELASTIC_JOB = f"kubernetes:{names.API_VERSION}:{names.KIND}"


def written(folder: Path, version: str) -> str:
    path = folder / "requirements.txt"
    path.write_text(f"alpha=={version} --hash=sha256:{'a' * 64}\n")
    return str(path)


def deployed(lock: str) -> graph.Graph:
    return graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "trainingPackages": lock})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> graph.Graph:
    return deployed(written(tmp_path_factory.mktemp("lock"), "1.0"))


def job(made: graph.Graph) -> graph.Registered:
    return made.one(JOB, "packages")


def worker(made: graph.Graph) -> Any:
    """The pod's template of the workers."""
    return made.one(ELASTIC_JOB).inputs["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]


def test_workers_and_their_nodes_come_after_the_packages(made: graph.Graph) -> None:
    assert made.needs(made.one(ELASTIC_JOB), job(made))
    assert made.needs(made.one("aws:eks/nodeGroup:NodeGroup", "workers"), job(made))


def test_the_job_writes_where_workers_read_and_nothing_else(made: graph.Graph) -> None:
    (container,) = job(made).inputs["spec"]["template"]["spec"]["containers"]
    (mount,) = [each for each in worker(made)["containers"][0]["volumeMounts"] if each["mountPath"] == "/packages"]
    assert mount["readOnly"] is True
    assert container["command"][-2:] == ["--out", f"{manifests.DATA_DIRECTORY}/{mount['subPath']}"]
    assert {"name": env.PACKAGES, "value": "/packages"} in worker(made)["containers"][0]["env"]


def test_the_job_and_the_workers_have_different_code(made: graph.Graph) -> None:
    keys = {each.name: each.inputs["key"] for each in made.all("aws:s3/bucketObjectv2:BucketObjectv2")}
    assert keys["installer"] != keys["code"]


def test_another_lock_is_another_job_and_restarts_the_workers(made: graph.Graph, tmp_path: Path) -> None:
    other = deployed(written(tmp_path, "1.1"))
    assert job(other).name != job(made).name
    assert worker(other) != worker(made)


def test_a_stack_without_a_lock_has_no_job() -> None:
    made = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    assert not [each for each in made.all(JOB) if "packages" in each.name]
    assert env.PACKAGES not in str(worker(made))


def test_the_job_ends_before_pulumi_gives_up_and_says_why(made: graph.Graph) -> None:
    assert job(made).inputs["spec"]["activeDeadlineSeconds"] == packages.MINUTES * 60
    assert int(job(made).create_timeout.removesuffix("m")) > packages.MINUTES
    (container,) = job(made).inputs["spec"]["template"]["spec"]["containers"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
