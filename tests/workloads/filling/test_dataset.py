"""The dataset job."""

from __future__ import annotations

from typing import Any

from tests import graph
from tidewater.elasticjob import names
from workloads.filling import dataset
from workloads.filling import job as jobs

JOB = "kubernetes:batch/v1:Job"


def job(**changes: Any) -> Any:
    """The job's manifest."""
    wanted = graph.parsed(**changes).training
    return jobs.manifest(wanted, dataset.filling(wanted, "s3://bucket/code"))


def container(**changes: Any) -> Any:
    """The container that makes the dataset."""
    (found,) = job(**changes)["spec"]["template"]["spec"]["containers"]
    return found


def command(**changes: Any) -> list[str]:
    """The job's command line."""
    line: list[str] = container(**changes)["command"]
    return line


def test_a_dataset_of_the_trainer_is_made_by_name() -> None:
    assert command()[2:] == ["dataset", "--name", "digits", "--out", "/data/digits"]


def test_an_archive_is_downloaded_into_its_own_directory() -> None:
    line = command(dataset="https://example.com/cats.zip")
    assert line[3:5] == ["--uri", "https://example.com/cats.zip"]
    assert line[6].startswith("/data/archive-")


def test_bad_input_fails_the_job_by_a_reason_that_the_official_plug_in_sees() -> None:
    # It waits for a Job that failed by PodFailurePolicy until the time-out.
    spec = job()["spec"]
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore"]
    assert spec["backoffLimit"] == 2


def test_a_lost_node_does_not_count_towards_the_back_off_limit() -> None:
    (rule,) = job()["spec"]["podFailurePolicy"]["rules"]
    assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_the_job_has_failed_by_its_deadline_before_pulumi_gives_up() -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "datasetMinutes": 90})
    registered = deployed.one(JOB)
    assert registered.inputs["spec"]["activeDeadlineSeconds"] == 90 * 60
    assert int(registered.create_timeout.removesuffix("m")) > 90


def test_the_error_of_a_failed_job_has_its_own_words() -> None:
    assert container()["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_the_next_up_starts_a_failed_job_again() -> None:
    assert job()["metadata"]["annotations"]["pulumi.com/replaceUnready"] == "true"


def test_workers_start_after_the_dataset_job() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    assert deployed.needs(deployed.one(f"kubernetes:{names.API_VERSION}:{names.KIND}"), deployed.one(JOB))
