"""Kills, a join and leaves by seeded schedules: a Trainer uses every sample once, and all workers have one state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.elastic.schedules.arena import Arena
from tests.elastic.schedules.plan import schedule
from tests.farm import Farm

pytestmark = pytest.mark.e2e

SEEDS = (10, 33, 16)
"""They have each kind of fault."""


def test_the_schedules_have_every_kind_of_fault() -> None:
    assert {move.kind for seed in SEEDS for move in schedule(seed).moves} == {"kill", "freeze", "join", "leave"}


def test_no_sample_is_lost_or_repeated_and_replicas_stay_equal(farm: Farm, etcd: str, tmp_path: Path) -> None:
    arena = Arena(farm, tmp_path / "arena", etcd, "reconfigured")
    try:
        for seed in SEEDS:
            arena.play(schedule(seed))
    finally:
        arena.job.kill()
