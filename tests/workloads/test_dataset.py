"""The dataset job."""

from __future__ import annotations

from typing import Any

import settings
from contract.elasticjob import names
from tests import graph
from workloads import dataset

JOB = "kubernetes:batch/v1:Job"


def command(**changes: Any) -> list[str]:
    """The job's command line."""
    wanted = settings.parse({**graph.defaults(), **changes}, stack="dev").training
    (container,) = dataset.job_manifest(wanted, "s3://bucket/code")["spec"]["template"]["spec"]["containers"]
    line: list[str] = container["command"]
    return line


def test_a_dataset_of_the_trainer_is_made_by_name() -> None:
    assert command()[2:] == ["dataset", "--name", "digits", "--out", "/data/digits"]


def test_an_archive_is_downloaded_into_its_own_directory() -> None:
    line = command(dataset="https://example.com/cats.zip")
    assert line[3:5] == ["--uri", "https://example.com/cats.zip"]
    assert line[6].startswith("/data/archive-")


def test_workers_start_after_the_dataset_job() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    assert deployed.needs(deployed.one(f"kubernetes:{names.API_VERSION}:{names.KIND}"), deployed.one(JOB))
