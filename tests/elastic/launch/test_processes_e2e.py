"""A worker of several processes trains like several workers, with a real etcd and the real trainer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.elastic.workers import Worker
from tidewater.contract import exit_codes
from tidewater.elastic.launch import rules

pytestmark = pytest.mark.e2e

LONG = ("--epochs", "1000", "--min-step-seconds", "0.02", "--metrics-port", "0")


def pids(worker: Worker) -> dict[str, int]:
    """Return the process ids of the latest processes by name."""
    return {line["worker"]: int(line["pid"]) for line in worker.events("started")}


def test_a_lost_process_is_replaced_while_the_others_continue_to_train(start: Callable[..., Worker]) -> None:
    pod = start("pod", "--processes", "2", *LONG)
    pod.wait_for_world(2)
    before = pids(pod)
    assert before.keys() == {"pod/0", "pod/1"}
    os.kill(before["pod/1"], signal.SIGKILL)
    pod.wait_for(lambda pod: pod.events("peer_lost") and len(pod.events("joined")) == 3)
    pod.wait_for_world(2)
    assert "1" in {line["world_size"] for line in pod.steps() if line["worker"] == "pod/0"}
    after = pids(pod)
    assert after["pod/0"] == before["pod/0"]
    assert after["pod/1"] != before["pod/1"]
    pod.signal(signal.SIGTERM)
    assert pod.wait() == exit_codes.LEFT
    assert {line["worker"] for line in pod.events("left")} == {"pod/0", "pod/1"}
    for name in after:
        steps = [int(line["step"]) for line in pod.steps() if line["worker"] == name]
        assert steps == sorted(set(steps))


def test_the_limits_count_workers_rather_than_processes(start: Callable[..., Worker]) -> None:
    one = start("one", "--processes", "2", "--min-workers", "2", *LONG)
    one.wait_for(lambda one: one.events("waiting"))
    assert one.events("waiting")[0]["min_processes"] == "3"
    assert not one.steps()
    other = start("other", "--processes", "2", "--min-workers", "2", *LONG)
    other.wait_for_world(4)


def test_a_worker_of_several_processes_finishes(start: Callable[..., Worker]) -> None:
    pod = start("pod", "--processes", "2", "--epochs", "2", forked=False)
    assert pod.wait() == exit_codes.FINISHED
    assert {line["worker"] for line in pod.events("finished")} == {"pod/0", "pod/1"}


def test_a_wrong_command_line_ends_the_whole_worker(start: Callable[..., Worker]) -> None:
    pod = start("pod", "--processes", "2", "--data", "/nowhere")
    assert pod.wait() == exit_codes.USAGE
    assert "event=process_lost" not in pod.text()


def test_a_process_whose_gpu_fails_is_left_out_and_the_others_train_on(start: Callable[..., Worker]) -> None:
    pod = start("pod", "--processes", "2", *LONG, python=("-m", "tests.elastic.launch.bad_gpu"))
    pod.wait_for(lambda pod: pod.events("process_left_out"))
    (left_out,) = pod.events("process_left_out")
    assert (left_out["process"], left_out["left"], left_out["of"]) == ("1", "1", "2")
    assert [line["worker"] for line in pod.events("device_failed")] == ["pod/1"] * rules.MAX_MACHINE_FAILURES
    reached = len(pod.steps())
    pod.wait_for(lambda pod: len(pod.steps()) > reached + 10)
    assert [line["worker"] for line in pod.events("started")].count("pod/0") == 1
    pod.signal(signal.SIGTERM)
    assert pod.wait() == exit_codes.LEFT
