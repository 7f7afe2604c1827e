"""Two jobs, and rooms for one and a half of them."""

from __future__ import annotations

import shlex
from typing import Any

from elasticdl.client.flags import commandline
from elasticdl.client.job.manifest import elastic_job
from elasticdl.client.job.pods import Place
from elasticdl.job import JobMode

from benchmarks.elasticdl import rooms
from packages.elasticdl.tests.client.seed import CODE, FACTS


def job() -> dict[str, Any]:
    """Return the job of the benchmark's command."""
    _, mode, *words = shlex.split(rooms.command("first-0", "first.yaml"))
    given = dict(word.removeprefix("--").split("=", 1) for word in commandline.words(words))
    return elastic_job(commandline.asked(JobMode(mode), given, []), Place("training", FACTS, CODE))


def test_each_worker_takes_a_room_and_neither_master_nor_server_does() -> None:
    specs = job()["spec"]["replicaSpecs"]
    taken = {
        kind: spec["template"]["spec"]["containers"][0]["resources"]["requests"].get(rooms.ROOM)
        for kind, spec in specs.items()
    }
    assert taken == {"Master": None, "PS": None, "Worker": "1"}
    assert rooms.WORKERS < rooms.ROOMS < 2 * rooms.WORKERS


def test_an_elastic_job_trains_with_one_worker_and_more() -> None:
    spec = job()["spec"]
    assert (spec["minReplicas"], spec["replicaSpecs"]["Worker"]["replicas"]) == (1, rooms.WORKERS)


def test_a_gang_has_all_its_workers_and_waits_without_any() -> None:
    before = job()
    for waits in (False, True):
        spec = rooms.as_gang(before, waits=waits)["spec"]
        assert (spec["minReplicas"], spec["suspend"]) == (rooms.WORKERS, waits)
        assert spec["replicaSpecs"] == before["spec"]["replicaSpecs"]
    assert "suspend" not in before["spec"]
