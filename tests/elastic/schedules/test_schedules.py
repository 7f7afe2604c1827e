"""Random schedules of kills, freezes, joins and leaves: no sample is lost or repeated, replicas stay equal.

    pytest tests/elastic/schedules/test_schedules.py                                # one schedule per named moment
    TIDEWATER_SCHEDULES=0:100 pytest tests/elastic/schedules/test_schedules.py      # a hundred, as `make soak` does
    TIDEWATER_SCHEDULES=17:18 pytest tests/elastic/schedules/test_schedules.py      # one, on its own job
    … test_schedules.py -k nccl                                                     # only on the double of NCCL

Real processes, gloo and etcd. All schedules run one after the other on one long-lived job, so that each starts with the
result of the previous one. After a failure, for another kind of group, and for the other kind of script, the next
schedule gets a new job. Seeds that are asked for run on each kind of group, and with both kinds of script: with
``tidewater.run``, and with loops of their own over epochs and validations. One schedule per moment takes the kinds of
group in turns, all but one of them with loops of their own.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.elastic.group.kinds import KINDS as KINDS_OF_GROUP
from tests.elastic.schedules import points
from tests.elastic.schedules.arena import COMMON, MOST_CHANGES, Arena, Ring
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import Book
from tests.elastic.schedules.plan import KINDS, ONE_PER_MOMENT, schedule
from tests.elastic.schedules.script import TOTAL
from tests.farm import Farm
from tidewater.contract import exit_codes

ASKED_FOR = os.environ.get("TIDEWATER_SCHEDULES")
RUN, OWN_LOOPS = "run", "own-loops"
"""The kinds of script. No job has both: all its workers must run the same script."""
WITH_RUN = "restarted"
"""In `make test` the schedules on this kind of group have ``tidewater.run``."""


def planned() -> list[tuple[str, str, int]]:
    """Return kind of group, kind of script and seed of each schedule; those of one job follow each other."""
    count = len(KINDS_OF_GROUP)
    if not ASKED_FOR:
        return [
            (kind, RUN if kind == WITH_RUN else OWN_LOOPS, seed)
            for turn, kind in enumerate(KINDS_OF_GROUP)
            for seed in ONE_PER_MOMENT[turn::count]
        ]
    return [
        (kind, script, seed)
        for turn, kind in enumerate(KINDS_OF_GROUP)
        for place, script in enumerate((RUN, OWN_LOOPS))
        for seed in range(*map(int, ASKED_FOR.split(":")))
        if (seed + turn) % 2 == place
    ]


SCHEDULES = planned()
INNER_STEPS = 3
"""An epoch of 50 samples then has steps of 21, 21 and 8."""
WITH_INNER_STEPS = range(*map(int, ASKED_FOR.split(":"))) if ASKED_FOR else [ONE_PER_MOMENT[at] for at in (0, 2, 12)]
"""Their first moves are a kill and a leave in a step, and a kill of a newcomer; the first one also has a join."""
HIT_RATE = 2 / 3
"""Of the strikes at named moments, at least so many must find their victim there. About five of six do: the worker that
an earlier move has made rank 0 may be the one that is never hit. `make test` has some two dozen, so chance is wide."""
CALM_SECONDS = 300.0
NOISE = 1e-4
"""Of the mean loss of an epoch, relative. Other world sizes add in another order, and nothing else differs."""


@pytest.fixture(scope="module")
def ring(farm: Farm, etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    numbers = itertools.count()

    def make(group: str, own_loops: bool) -> Arena:
        folder = tmp_path_factory.mktemp(f"arena{next(numbers)}")
        return Arena(farm, folder, etcd, group, own_loops=own_loops)

    ring = Ring(make)
    yield ring
    ring.discard()


def test_every_kind_of_fault_and_every_named_moment_occurs() -> None:
    moves = [move for seed in range(100) for move in schedule(seed).moves]
    for point in points.ALL:
        kinds = {move.kind for move in moves if move.point == point}
        assert {"kill", "freeze", "leave"} <= kinds, f"at {point} only {kinds}"
    assert {move.kind for move in moves if not move.point} == set(KINDS)
    together = sum(not move.gap_seconds for seed in range(100) for move in schedule(seed).moves[1:])
    assert together >= 20
    assert schedule(17) == schedule(17)


def test_one_schedule_per_moment_covers_every_moment_and_every_fault() -> None:
    first = [schedule(seed).moves[0] for seed in ONE_PER_MOMENT]
    assert [move.point for move in first] == list(points.ALL)
    assert [move.kind for move in first[:6]] == ["kill", "freeze", "leave"] * 2


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("group", "script", "seed"),
    SCHEDULES,
    ids=[f"{group}-{script}-schedule-{seed}" for group, script, seed in SCHEDULES],
)
def test_no_sample_is_lost_or_repeated_and_all_replicas_stay_equal(
    ring: Ring, group: str, script: str, seed: int
) -> None:
    arena = ring.play(group, script == OWN_LOOPS, seed)
    ring.pauses.append(arena.pauses[-1])
    ring.changes.append(arena.changes[-1])
    ring.aims += arena.aims
    arena.aims.clear()


@pytest.mark.e2e
def test_most_faults_hit_their_worker_at_the_named_moment(ring: Ring) -> None:
    if not ring.aims:  # only this test was selected
        test_no_sample_is_lost_or_repeated_and_all_replicas_stay_equal(ring, *SCHEDULES[0])
    missed = Counter(aim.point for aim in ring.aims if not aim.hit)
    hits = sum(aim.hit for aim in ring.aims)
    print(f"{hits} of {len(ring.aims)} strikes came at their moment; missed: {dict(missed)}")
    assert hits >= HIT_RATE * len(ring.aims), f"{hits} of {len(ring.aims)}; missed: {dict(missed)}"


@pytest.mark.e2e
def test_the_membership_settles_after_every_fault(ring: Ring) -> None:
    if not ring.changes:  # only this test was selected
        test_no_sample_is_lost_or_repeated_and_all_replicas_stay_equal(ring, *SCHEDULES[0])
    assert statistics.mean(ring.changes) <= MOST_CHANGES, ring.changes


@pytest.mark.e2e
def test_losses_and_validations_equal_those_of_an_undisturbed_run(ring: Ring, farm: Farm, etcd: str) -> None:
    if ring.arena is None:  # only this test was selected, or the last schedule has failed
        test_no_sample_is_lost_or_repeated_and_all_replicas_stay_equal(ring, *SCHEDULES[0])
    assert ring.arena is not None
    ring.arena.job.kill()
    disturbed = ring.arena.job.book
    disturbed.refresh()
    steps = -(-TOTAL // 7)
    epochs = disturbed.reached // steps
    flags = ("--epochs", str(epochs), "--checkpoint-minutes", "0", "--report-every", "1000")
    folder = ring.arena.job.folder
    calm = Job(farm, folder.with_name(f"{folder.name}-calm"), etcd, *COMMON, *flags)
    own_loop = "tensor" if ring.arena.own_loops else ""
    assert calm.start("calm", own_loop=own_loop).wait(CALM_SECONDS) == exit_codes.FINISHED
    calm.book.refresh()
    calm.book.refresh()  # the newest entries count only after another refresh
    assert samples(disturbed, epochs * steps) == samples(calm.book, epochs * steps)
    pairs = [(epoch_loss(disturbed, epoch, steps), epoch_loss(calm.book, epoch, steps)) for epoch in range(epochs)]
    worst = max(abs(one - other) / other for one, other in pairs)
    print(f"{len(ring.pauses)} schedules over {disturbed.reached} steps, {len(ring.arena.job.workers)} workers")
    print(f"generations per event: mean {statistics.mean(ring.changes):.2f}, worst {max(ring.changes):.2f}")
    print(f"longest pause: median {statistics.median(ring.pauses):.2f} s, worst {max(ring.pauses):.2f} s")
    print(f"loss of the last epoch {pairs[-1][0]:.6f}, undisturbed {pairs[-1][1]:.6f}, worst difference {worst:.2e}")
    assert worst < NOISE
    undisturbed = {found.epoch: found.outputs for found in calm.book.validated}
    assert len(undisturbed) == (epochs if ring.arena.own_loops else 0)
    for found in disturbed.validated:
        if found.epoch < epochs:
            assert found.outputs == pytest.approx(undisturbed[found.epoch], rel=NOISE, abs=NOISE), found


@pytest.fixture(scope="module")
def inner_ring(farm: Farm, etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    def make(group: str, own_loops: bool) -> Arena:
        return Arena(farm, tmp_path_factory.mktemp("inner"), etcd, group, own_loops=own_loops, inner_steps=INNER_STEPS)

    ring = Ring(make)
    yield ring
    ring.discard()


@pytest.mark.e2e
@pytest.mark.parametrize("seed", WITH_INNER_STEPS)
def test_so_it_is_with_inner_steps(inner_ring: Ring, seed: int) -> None:
    inner_ring.play("reconfigured", own_loops=False, seed=seed)


def samples(book: Book, steps: int) -> list[list[int]]:
    """Return the samples that each step really consumed."""
    history = book.history()
    return [
        sorted(sample for attempt in history[step] if attempt.weight for sample in attempt.samples)
        for step in range(1, steps + 1)
    ]


def epoch_loss(book: Book, epoch: int, steps: int) -> float:
    """Return the mean loss over the samples of an epoch."""
    finals = [next(iter(book.finals[step].values())) for step in range(epoch * steps + 1, (epoch + 1) * steps + 1)]
    sizes = [min(7, TOTAL - 7 * index) for index in range(steps)]
    return sum(final.loss * size for final, size in zip(finals, sizes, strict=True)) / TOTAL
