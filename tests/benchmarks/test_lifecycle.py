"""What is read of a stack's life: its output, its logs, and when a resize has been done by both programs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import lifecycle, stack
from tests.e2e.checkout import Checkout, Output

PRINTED = """\
 +  pulumi:pulumi:Stack tidewater-local creating (0s)
 +  eks:index:Cluster cluster created (3.25s)
 +  kubernetes:batch/v1:Job dataset created (9s)
 ~  aws:s3/bucket:Bucket code updated (20s)
 +  aws:s3/bucket:Bucket code created (0.5s)
"""
LOGS = {
    "digits-0": "2026-11-26T10:00:01.5Z step=1 world_size=2 \n2026-11-26T10:00:09.123456789Z step=9 world_size=2 \n",
    "digits-1": "2026-11-26T10:00:05Z step=5 world_size=3 \n2026-11-26T10:00:08Z step=8 world_size=2 \n",
}
BEGIN = 1_795_687_200.0
"""2026-11-26T10:00:00Z."""


class Fake(Checkout):
    """A checkout that has logs and runs no command."""

    @property
    def namespace(self) -> str:
        return "training"

    def run(self, command: str, *, expect: int | None = 0, timeout: float = 0) -> Output:
        return Output(command, 0, next((text for pod, text in LOGS.items() if f" {pod} " in command), ""))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Fake(tmp_path)


def test_the_slowest_resources_are_those_that_were_created_slowest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "SLOWEST", 2)
    assert list(lifecycle.slowest_resources(PRINTED).items()) == [
        ("kubernetes:batch/v1:Job dataset", 9.0),
        ("eks:index:Cluster cluster", 3.25),
    ]


def test_the_first_line_of_any_pod_counts_and_only_after_the_given_time(checkout: Checkout) -> None:
    assert stack.first_line(checkout, LOGS, "world_size=2 ") == BEGIN + 1.5
    assert stack.first_line(checkout, LOGS, "world_size=2 ", after=BEGIN + 5) == BEGIN + 8
    assert stack.first_line(checkout, ["digits-0"], "world_size=2 ", after=BEGIN + 5) == BEGIN + 9.123456


def test_a_resize_is_over_for_pulumi_and_for_the_workers(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((BEGIN + 4, BEGIN + 6))
    monkeypatch.setattr(time, "time", lambda: next(now))
    monkeypatch.setattr(lifecycle, "wait_for_world", lambda checkout, size: None)
    monkeypatch.setattr(lifecycle, "running_workers", lambda checkout: list(LOGS))
    assert lifecycle.resize(checkout, 2, lifecycle.SHRINK) == {
        "resize 3 to 2, until pulumi up returns": 2.0,
        "resize 3 to 2, until the first step of all workers": 4.0,
    }
