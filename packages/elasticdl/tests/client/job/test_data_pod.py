"""Data is written by a pod that has a stack's file system; the cluster is one in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.client.flags.values import Volume
from elasticdl.client.job.data_pod import Task, run
from elasticdl.client.job.submit import Steps

from packages.elasticdl.tests.client import seed
from tests.cli.fake import FakeCluster
from tidewater.cli.errors import CliError
from tidewater.kube.advice import advised
from tidewater.kube.cluster import LogOptions, Object
from tidewater.kube.errors import Forbidden, error_of
from tidewater.kube.kinds import CLAIMS, CONFIG_MAPS, PODS, Kind

NAME = "elasticdl-data-a1b2"
TASK = Task("digits", "/data/digits", {"records_per_shard": 500})


class World(FakeCluster):
    """A stack's namespace, in which each pod has the states of `plan`, one for each look at it."""

    def __init__(self, *plan: dict[str, Any]) -> None:
        super().__init__()
        self.plan = list(plan)
        self.said: list[str] = []
        self.uploaded = 0
        self.tools = Steps(self.said.append, self._upload, lambda: "a1b2", self._pass)
        self.put(CONFIG_MAPS, seed.config_map())
        self.put(CLAIMS, {"metadata": {"name": seed.FACTS.data_claim}})

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        self._may("create", kind)
        self.sent.append(("create", object))
        return self.put(kind, {**object, "status": {}})

    def log(self, pod: str, options: LogOptions, namespace: str = "") -> Any:
        yield "/data/digits/train: 1448 records"

    def _upload(self, archive: object, bucket: str) -> None:
        self.uploaded += 1

    def _pass(self, seconds: float) -> None:
        assert self.plan, "the command waits for more than has happened"
        if step := self.plan.pop(0):
            self.change(PODS, NAME, status=step)
        else:
            self.remove(PODS, NAME)


def test_the_pod_is_a_workers_with_the_writer_in_place_of_the_worker() -> None:
    world = World({"phase": "Running"}, {"phase": "Succeeded"})
    run(TASK, world, world.tools)
    ((_, pod),) = world.sent
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == (NAME, "training")
    (container,) = pod["spec"]["containers"]
    assert container["command"][4:-1] == ["python3", "-m", "elasticdl.client.writing", "digits", "/data/digits"]
    assert json.loads(container["command"][-1]) == {"records_per_shard": 500}
    assert {"name": "volume-0", "mountPath": "/data"} in container["volumeMounts"]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert world.uploaded == 1


def test_what_the_pod_prints_is_shown_and_the_pod_is_deleted() -> None:
    world = World({"phase": "Succeeded"})
    run(TASK, world, world.tools)
    assert world.said[-1] == "/data/digits/train: 1448 records"
    assert not world.list(PODS).items


def test_what_the_pod_waits_for_is_said_once() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    room = {"conditions": [{"reason": "Unschedulable", "message": "0/1 nodes are available"}]}
    pulled = {"conditions": [], "containerStatuses": [waiting]}
    world = World(room, room, pulled, {"phase": "Succeeded"})
    run(TASK, world, world.tools)
    assert world.said[1:3] == ["  0/1 nodes are available", "  ImagePullBackOff: no such image"]


def test_a_pod_that_fails_is_an_error_with_its_log_before_it() -> None:
    world = World({"phase": "Failed"})
    with pytest.raises(CliError, match=f"/data/digits was not written: pod {NAME} has failed"):
        run(TASK, world, world.tools)
    assert "1448 records" in world.said[-1]
    assert not world.list(PODS).items


def test_a_pod_that_somebody_deletes_is_an_error() -> None:
    world = World({})
    with pytest.raises(CliError, match="was deleted by somebody"):
        run(TASK, world, world.tools)


def test_without_a_stack_nothing_is_made() -> None:
    world = World()
    world.remove(CONFIG_MAPS, "tidewater")
    with pytest.raises(CliError, match="--in_pod: namespace training has no ConfigMap") as caught:
        run(TASK, world, world.tools)
    assert caught.value.remedy
    assert not world.sent


def test_a_claim_that_is_not_there_is_named() -> None:
    world = World()
    task = Task("digits", "/d", {}, [Volume(mount_path="/d", claim_name="none")])
    with pytest.raises(WrongCommand, match="there is no claim none in namespace training"):
        run(task, world, world.tools)
    assert (world.sent, world.uploaded) == ([], 0)


def test_a_pod_that_is_refused_is_the_api_servers_sentence() -> None:
    world = World()
    world.failures["create", "Pod"] = advised(error_of(403, "Forbidden", "pods is forbidden"))
    with pytest.raises(Forbidden, match="pods is forbidden"):
        run(TASK, world, world.tools)
