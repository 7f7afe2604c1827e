"""A benchmark job handles lost and refused nodes as an operator of the system would."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import SYSTEMS, Site, System

REFUSED = "RendezvousClosedError"
PATIENCE_SECONDS = 60.0
"""For what takes milliseconds when nothing else runs."""


def a_site(folder: Path) -> Site:
    nothing = Path("/nonexistent")
    return Site(nothing, nothing, nothing, nothing, folder, nodes=2, checkpoint_every=100)


def nodes_that(command: str) -> System:
    """Return a system: node 0 runs ``command`` while the other node waits."""

    def node(site: Site, port: int, number: int) -> list[str]:
        return ["sh", "-c", f"echo attempt {site.attempt}; {command if number == 0 else 'exec sleep 60'}"]

    return System("shell", node, over=REFUSED)


@pytest.mark.parametrize(("command", "over"), [(f"echo torch.{REFUSED}; exit 1", True), ("exit 1", False)])
def test_a_job_is_over_when_a_node_is_refused_permanently_and_not_when_a_node_fails(
    tmp_path: Path, command: str, over: bool
) -> None:
    with Job(nodes_that(command), a_site(tmp_path)) as job:
        job.start()
        assert job.nodes[0].wait(PATIENCE_SECONDS) is not None
        assert job.is_over(0) is over


def test_an_abandoned_job_leaves_no_node_and_the_next_nodes_belong_to_a_new_attempt(tmp_path: Path) -> None:
    with Job(nodes_that("exec sleep 60"), a_site(tmp_path)) as job:
        job.start()
        first = job.nodes[0]
        job.give_up()
        assert job.nodes == {}
        assert first.exit_code is not None
        job.start_node(0)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not job.nodes[0].last_lines() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert job.nodes[0].last_lines() == "attempt 2"


def test_each_attempt_of_torchrun_uses_its_own_rendezvous(tmp_path: Path) -> None:
    def rendezvous(attempt: int) -> set[str]:
        site = replace(a_site(tmp_path), attempt=attempt)
        return {
            argument
            for name in ("torchrun", "torchrun tuned")
            for argument in SYSTEMS[name].node(site, 29400, 0)
            if argument.startswith("--rdzv-id=")
        }

    assert len(rendezvous(1)) == 1
    assert not rendezvous(1) & rendezvous(2)
