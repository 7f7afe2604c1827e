"""Both kinds of jobs have the same workers."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.controller.jobs import ELASTIC_JOB, LEAST, MOST, PYTORCH_JOB, RESIZED, WORKERS, Kind, worker_name
from tidewater.elasticjob import names

KINDS = [ELASTIC_JOB, PYTORCH_JOB]


def worker_of(kind: Kind) -> dict[str, Any]:
    worker: dict[str, Any] = kind.manifest("job-0")["spec"][kind.replicas]["Worker"]
    return worker


def test_the_workers_differ_in_the_name_of_the_container_only() -> None:
    elastic, pytorch = worker_of(ELASTIC_JOB), worker_of(PYTORCH_JOB)
    (container,) = elastic["template"]["spec"]["containers"]
    assert container["name"] == names.WORKER_CONTAINER
    container["name"] = "pytorch"
    assert elastic == pytorch


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_resize_changes_the_number_of_workers_and_stays_in_bounds(kind: Kind) -> None:
    assert kind.resize(RESIZED) == {"spec": {kind.replicas: {"Worker": {"replicas": RESIZED}}}}
    assert LEAST < WORKERS < RESIZED <= MOST


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (ELASTIC_JOB, "/apis/elastic.pytorch.org/v1alpha1/namespaces/turn/elasticjobs"),
        (PYTORCH_JOB, "/apis/kubeflow.org/v1/namespaces/turn/pytorchjobs"),
    ],
    ids=["ElasticJob", "PyTorchJob"],
)
def test_jobs_are_created_where_the_api_has_them(kind: Kind, path: str) -> None:
    assert kind.path("turn") == path


def test_pods_have_the_names_that_the_benchmark_waits_for() -> None:
    assert worker_name("job-7", 2) == names.pod_name("job-7", names.WORKER, 2)
