"""Interruptions: `up` and `destroy` killed half way, and a cloud that lost its daemon.

Runs after the life of a stack, on the same checkout, whose cloud is stopped by then.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.checkout import COMMAND_TIMEOUT_SECONDS, Checkout, Output, wait_until
from tests.e2e.inventory import aws_inventory, host_leftovers, processes_of

pytestmark = [pytest.mark.e2e, pytest.mark.incremental]


SETTLE_SECONDS = 1.5
"""What is quick to make is made by then; what is awaited for long, and was printed as the sign, is still under way."""


def _kill_once_printed(checkout: Checkout, command: str, sign: str, times: int = 1) -> None:
    """Starts `command`, and kills its whole process group soon after it has printed `sign` so often."""
    log = Path(checkout.path, "killed.log")
    deadline = time.monotonic() + COMMAND_TIMEOUT_SECONDS
    with log.open("w") as out:
        process = checkout.start(command, stdout=out, stderr=out)
        while log.read_text().count(sign) < times:
            assert process.poll() is None, f"{command} ended by itself:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{sign!r} never came:\n{log.read_text()}"
            time.sleep(0.2)
        time.sleep(SETTLE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _cancel(checkout: Checkout) -> None:
    """Releases the lock of an update that was killed."""
    checkout.run("pulumi cancel --yes", expect=None)


def _repeat(checkout: Checkout, command: str) -> Output:
    """Runs an interrupted command again, as its user would: `pulumi cancel` if the engine asks."""
    first = checkout.run(command, expect=None)
    if first.status != 0 and "pulumi cancel" in first.text:
        _cancel(checkout)
        return checkout.run(command)
    assert first.status == 0, str(first)
    return first


def test_up_killed_half_way_completes_the_second_time(checkout: Checkout) -> None:
    checkout.run("python -m localcloud start")
    checkout.run("pulumi stack select local")
    _kill_once_printed(checkout, "pulumi up --yes", "Cluster tidewater-local-eksCluster creating")
    _cancel(checkout)
    _kill_once_printed(checkout, "pulumi up --yes", "Job job-dataset-digits creating")
    _repeat(checkout, "pulumi up --yes")
    checkout.run("pulumi preview --expect-no-changes")


def test_kubectl_finds_the_cluster_of_a_stack_that_was_made_again(checkout: Checkout) -> None:
    assert "etcd" in checkout.run("kubectl get pods --all-namespaces").text


def test_a_second_make_up_trains_again(checkout: Checkout) -> None:
    assert "step=" in checkout.make("up").text


def test_destroy_killed_half_way_completes_the_second_time(checkout: Checkout) -> None:
    _kill_once_printed(checkout, "pulumi destroy --yes", " deleted ", times=20)
    _repeat(checkout, "pulumi destroy --yes")
    left = aws_inventory(checkout.cloud())
    assert left["clusters"] == left["buckets"] == left["file systems"] == frozenset()


def test_start_after_a_killed_daemon_cleans_up_and_says_so(checkout: Checkout) -> None:
    checkout.run("pulumi up --yes")
    status = json.loads((checkout.state / "daemon.json").read_text())
    instance = json.loads((checkout.state / "instance.json").read_text())["id"]
    assert processes_of(instance, checkout.state)
    os.kill(status["pid"], signal.SIGKILL)
    wait_until("everything to end with the daemon", lambda: not processes_of(instance, checkout.state))
    started = checkout.run("python -m localcloud start")
    assert "cleaned" in started.text
    listed = checkout.aws("eks list-clusters")
    assert listed["clusters"] == []
    assert "step=" in checkout.make("up").text  # says that the old stack is gone, and makes it anew


def test_stop_after_all_that_leaves_nothing(checkout: Checkout) -> None:
    checkout.run("pulumi destroy --yes")
    instance = json.loads((checkout.state / "instance.json").read_text())["id"]
    checkout.run("python -m localcloud stop")
    assert host_leftovers(instance, checkout.state) == []
