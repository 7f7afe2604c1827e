"""The ledger's check detects typical defects of samplers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.breakages import ALL
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import TOTAL
from tests.farm import Farm

pytestmark = pytest.mark.e2e

SAYS = {
    "moves by its own share": "was repeated",
    "pads the tail": "was repeated",
    "drops the tail": "lost 1 of 50 samples",
    "repeats after a failure": "was repeated",
    "skips after a failure": "lost 7 of 50 samples",
}

ALWAYS = ("repeats after a failure", "skips after a failure")

KILLS = 8
"""Some breakages wait for the next failure when one falls next to an epoch's end, as one in four does."""


def train(farm: Farm, folder: Path, etcd: str, breakage: str) -> list[str]:
    """Kill and replace one of two workers until the check finds a problem; return the problems."""
    job = Job(farm, folder, etcd, *COMMON, "--min-step-seconds", "0.005")
    a = job.start("a", breakage=breakage)
    for _ in range(KILLS):
        b = job.start("b", breakage=breakage)
        job.wait_for_all()
        a.wait_for_step((a.last.step if a.last else 0) + 20)
        b.signal(signal.SIGKILL)
        b.wait()
        job.wait_for_all()
        a.wait_for_step((a.last.step if a.last else 0) + 20)
        job.book.refresh()
        if problems := verdict(job.book, TOTAL):
            break
    job.kill()
    return problems


@pytest.mark.parametrize(
    "breakage", [pytest.param(each, marks=() if each in ALWAYS else pytest.mark.soak) for each in ALL]
)
def test_a_broken_sampler_is_detected_and_its_samples_are_named(
    farm: Farm, tmp_path: Path, etcd: str, breakage: str
) -> None:
    problems = train(farm, tmp_path / "job", etcd, breakage)
    assert any(SAYS[breakage] in problem for problem in problems), problems


@pytest.mark.soak
def test_the_real_sampler_passes_the_same_check(farm: Farm, tmp_path: Path, etcd: str) -> None:
    assert train(farm, tmp_path / "job", etcd, "") == []
