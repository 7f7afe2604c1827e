"""The seeded schedules of faults with workers of two processes that divide a model: what holds for others holds too.

    pytest tests/elastic/sharded/test_schedules.py                                  # some of the named moments
    TIDEWATER_SCHEDULES=0:100 pytest tests/elastic/sharded/test_schedules.py        # a hundred, as `make soak` does

See ``schedules.test_schedules``. Seeds that are asked for take the kinds of group in turns, and both kinds of script.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.elastic.group.kinds import KINDS as KINDS_OF_GROUP
from tests.elastic.schedules.arena import COMMON, Ring
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.plan import ONE_PER_MOMENT
from tests.elastic.sharded.units import DividedArena
from tests.farm import Farm
from tidewater.contract import exit_codes
from tidewater.elastic.checkpoint import format as dcp

pytestmark = pytest.mark.e2e

ASKED_FOR = os.environ.get("TIDEWATER_SCHEDULES")
_EACH = 4
"""`make test` has every fourth of the named moments."""
TOLERANCE = 1e-5
"""Of a tensor's largest value, or of 1 if that is less, between these and a model that is whole, of one undisturbed
worker: other numbers of processes add in another order. 2e-6 was seen, and no more after more steps. A step's pass with
the factor of another step changes the loss by a tenth."""
SECONDS = 300.0


def planned() -> list[tuple[str, bool, int]]:
    """Return kind of group, whether the script has its own loop, and seed of each schedule; those of one job follow
    each other."""
    if not ASKED_FOR:
        return [("reconfigured", True, seed) for seed in ONE_PER_MOMENT[::_EACH]]
    return [
        (kind, own_loop, seed)
        for turn, kind in enumerate(KINDS_OF_GROUP)
        for own_loop in (False, True)
        for seed in range(*map(int, ASKED_FOR.split(":")))
        if seed % (2 * len(KINDS_OF_GROUP)) == 2 * turn + own_loop
    ]


SCHEDULES = planned()


@pytest.fixture(scope="module")
def ring(farm: Farm, etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    def make(group: str, own_loops: bool) -> DividedArena:
        return DividedArena(farm, tmp_path_factory.mktemp("divided"), etcd, group, own_loops=own_loops)

    ring = Ring(make)
    yield ring
    ring.discard()


@pytest.mark.parametrize(
    ("group", "own_loop", "seed"),
    SCHEDULES,
    ids=[f"{group}-{'own-loop' if own else 'run'}-schedule-{seed}" for group, own, seed in SCHEDULES],
)
def test_no_sample_is_lost_or_repeated_and_counterparts_stay_equal(
    ring: Ring, group: str, own_loop: bool, seed: int
) -> None:
    arena = ring.play(group, own_loop, seed)
    print(f"hits: {[f'{aim.point} {aim.hit}' for aim in arena.aims]}")
    arena.aims.clear()


def test_weights_and_validations_are_those_of_a_whole_model_that_was_not_disturbed(
    ring: Ring, farm: Farm, etcd: str
) -> None:
    arena = ring.arena or ring.play(*SCHEDULES[0])  # none if only this test was selected, or the last one has failed
    job, workers = arena.job, arena.job.living
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert {worker.wait(SECONDS) for worker in workers} == {exit_codes.LEFT}
    job.book.refresh()
    disturbed = dcp.read(max(job.checkpoints.glob("step-*")))
    assert disturbed["step"] >= job.book.reached > 0
    flags = ("--max-steps", str(disturbed["step"]), "--checkpoint-minutes", "0", "--report-every", "1000")
    calm = Job(farm, job.folder.with_name(f"{job.folder.name}-calm"), etcd, *COMMON, *flags)
    own_loop = "tensor" if arena.own_loops else ""
    assert calm.start("calm", whole=True, own_loop=own_loop).wait(SECONDS) == exit_codes.FINISHED
    calm.book.refresh()
    calm.book.refresh()  # the newest entries count only after another refresh
    undisturbed = dcp.read(max(calm.checkpoints.glob("step-*")))
    assert undisturbed["step"] == disturbed["step"]
    note_the_last_step(disturbed)
    for name in ("model", "optimizers", "stateful"):
        compare(disturbed[name], undisturbed[name])
    outputs = {found.step: found.outputs for found in calm.book.validated}
    compared = [found for found in job.book.validated if found.step in outputs]
    assert bool(compared) == arena.own_loops
    for found in compared:
        assert found.outputs == pytest.approx(outputs[found.step], rel=1e-4, abs=1e-4), found


def note_the_last_step(tree: dict[str, Any]) -> None:
    """Note the last step in the average, as the script's ``on_step`` does in the workers that continue from there."""
    average = tree["stateful"]["average"]
    if tree["pending"]:
        average["steps"] += 1
        for value, parameter in zip(average["values"], tree["model"].values(), strict=True):
            value.lerp_(parameter, 0.1)


def compare(mine: Any, theirs: Any) -> None:
    """Assert that two trees have the same tensors, but for the tolerance."""
    if isinstance(mine, torch.Tensor):
        largest = max(1.0, float(theirs.abs().max())) if theirs.numel() else 1.0
        torch.testing.assert_close(mine, theirs, rtol=0, atol=TOLERANCE * largest)
    elif isinstance(mine, dict | list):
        assert len(mine) == len(theirs)
        for name in mine if isinstance(mine, dict) else range(len(mine)):
            compare(mine[name], theirs[name])
    else:
        assert mine == theirs
