"""A sample says of each job and pod what a person wants to know, also where the API's objects are incomplete."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.top.objects import event, job, pod, unschedulable
from tidewater.cli.top.samples import job_sample, pod_state
from tidewater.cli.top.scrape import Reading, Scraped


def terminated(code: int) -> dict[str, Any]:
    return {"name": "elasticjob-worker", "state": {"terminated": {"exitCode": code}}}


def waiting(reason: str) -> dict[str, Any]:
    return {"name": "elasticjob-worker", "state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        pytest.param({"phase": "Running"}, "Running", id="running"),
        pytest.param({"phase": "Pending"}, "Pending", id="pending"),
        pytest.param({"phase": "Failed", "containerStatuses": [terminated(137)]}, "Failed 137", id="killed"),
        pytest.param({"phase": "Failed", "reason": "Evicted"}, "Evicted", id="evicted"),
        pytest.param({"phase": "Failed"}, "Failed", id="failed-without-a-code"),
        pytest.param(
            {"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")]}, "ImagePullBackOff", id="no-image"
        ),
        pytest.param({"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}, "Pending", id="starts"),
        pytest.param(
            {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, "Not ready", id="not-ready"
        ),
        pytest.param({}, "Running", id="as-made"),
    ],
)
def test_the_state_of_a_pod_is_said_in_a_word_or_two(status: dict[str, Any], state: str) -> None:
    assert pod_state(pod(0, **status)) == state


def test_a_pod_without_room_is_unschedulable_and_one_being_deleted_is_ending() -> None:
    assert pod_state(unschedulable(0)) == "Unschedulable"
    ending = pod(0)
    ending["metadata"]["deletionTimestamp"] = "2026-11-23T10:01:00Z"
    assert pod_state(ending) == "Ending"


def test_workers_below_the_minimum_are_core_and_come_in_the_order_of_their_indices() -> None:
    found = job_sample(job(), [pod(2), pod(0), pod(1)], (), {})
    assert [(worker.index, worker.core) for worker in found.workers] == [(0, True), (1, False), (2, False)]


def test_pods_of_a_replica_below_the_minimum_are_core() -> None:
    pods = [pod(index) for index in range(4)]
    for index, each in enumerate(pods):
        each["metadata"]["labels"]["tidewater.dev/replica"] = str(index // 2)
    found = job_sample(job(), pods, (), {})
    assert [worker.core for worker in found.workers] == [True, True, False, False]


def test_what_a_worker_says_of_itself_decides_whether_it_is_core() -> None:
    successor, first = pod(7), pod(0)
    successor["metadata"]["labels"]["tidewater.dev/tier"] = "core"
    first["metadata"]["labels"]["tidewater.dev/tier"] = "surge"
    found = job_sample(job(), [successor, first], (), {})
    assert [(worker.index, worker.core) for worker in found.workers] == [(0, False), (7, True)]


def test_other_types_have_their_own_minimum_and_come_after_the_workers() -> None:
    mixed = job()
    mixed["spec"]["replicaSpecs"]["Master"] = {"replicas": 1, "template": {}}
    master = pod(0)
    master["metadata"] |= {"name": "digits-master-0", "uid": "m"}
    master["metadata"]["labels"]["replica-type"] = "master"
    found = job_sample(mixed, [master, pod(0)], (), {})
    assert [(worker.type, worker.core) for worker in found.workers] == [("Worker", True), ("Master", True)]


def test_a_job_that_no_controller_has_seen_is_new_and_has_the_size_of_its_spec() -> None:
    unseen = job()
    del unseen["status"], unseen["spec"]["minReplicas"], unseen["spec"]["maxReplicas"]
    found = job_sample(unseen, [], [], {})
    assert (found.state, found.desired, found.minimum, found.maximum, found.active) == ("New", 2, 2, 2, 0)


def test_metrics_belong_to_the_pod_of_that_name_and_namespace() -> None:
    scraped = Scraped({9464: Reading(at=1.0)})
    found = job_sample(job(), [pod(0), pod(1)], [], {("training", "digits-worker-1"): scraped})
    assert [worker.scraped for worker in found.workers] == [Scraped(), scraped]


def test_an_event_that_is_repeated_is_another_note() -> None:
    once = event("ExitedWithCode", "exit code 1", kind="Warning")
    twice = {**once, "count": 2, "lastTimestamp": "2026-11-23T10:05:00Z"}
    before, now = (job_sample(job(), [], [each], {}).notes[0] for each in (once, twice))
    assert before.key != now.key
    assert now.warning
    assert now.at > before.at
