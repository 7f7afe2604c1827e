"""A rank is named if the others wait for it and not if only its share is larger, once, by all alike."""

from __future__ import annotations

import io
import random
from statistics import median

import pytest

from tidewater.elastic.membership.rules import Member
from tidewater.elastic.observe.log import Log, parse
from tidewater.elastic.observe.metrics import Metrics
from tidewater.elastic.peer.stragglers import STEPS, Observation, Slow, Stragglers, slowest

BATCH = 60


def judged(*seconds: float, batch_size: int = BATCH, before: int | None = None) -> Slow | None:
    """Return the judgement about ranks that take so long in every step."""
    return slowest([Observation(seconds, batch_size)] * STEPS, before)


def test_the_rank_that_takes_a_third_longer_than_the_others_is_slow() -> None:
    assert judged(0.10, 0.12, 0.15) == Slow(2, 0.15, median((0.10, 0.12)))
    assert judged(0.10, 0.11, 0.13) is None


def test_of_two_ranks_the_other_is_the_measure() -> None:
    assert judged(0.2, 0.1) == Slow(0, 0.2, 0.1)


def test_slow_steps_in_fewer_than_half_count_for_nothing() -> None:
    usual, slow = Observation((0.1, 0.1, 0.1), BATCH), Observation((0.1, 3.0, 0.1), BATCH)
    half = STEPS // 2
    assert slowest([usual] * (half + 1) + [slow] * (half - 1), None) is None
    found = slowest([usual] * (half - 1) + [slow] * (half + 1), None)
    assert found is not None
    assert found.rank == 1


def test_a_difference_of_milliseconds_is_none() -> None:
    assert judged(0.002, 0.002, 0.006) is None
    assert judged(0.002, 0.002, 0.008) == Slow(2, 0.008, 0.002)


@pytest.mark.parametrize("fixed", [0.0, 0.05, 10.0], ids=["by sample", "in part", "hardly"])
@pytest.mark.parametrize("batch_size", [3, 4, 5, 6, 7, 61])
def test_equal_machines_with_different_shares_are_not_slow_whatever_part_of_the_time_depends_on_the_share(
    fixed: float, batch_size: int
) -> None:
    shares = [len(range(rank, batch_size, 3)) for rank in range(3)]
    assert judged(*(fixed + 0.05 * share for share in shares), batch_size=batch_size) is None


def test_a_slow_machine_is_found_with_different_shares_too() -> None:
    found = judged(0.15, 0.15, 0.2, batch_size=8)  # 3, 3 and 2 samples
    assert found is not None
    assert found.rank == 2


def test_the_slow_one_stays_it_until_it_is_as_fast_as_the_others() -> None:
    assert judged(0.1, 0.12, 0.1) is None
    assert judged(0.1, 0.12, 0.1, before=1) == Slow(1, 0.12, 0.1)
    assert judged(0.1, 0.105, 0.1, before=1) is None
    assert judged(0.1, 0.105, 0.2, before=1) == Slow(2, 0.2, median((0.1, 0.105)))


class Noted(Metrics):
    """Metrics that remember by how much this worker is slow."""

    def __init__(self) -> None:
        self.slow: list[float] = []

    def straggles(self, seconds: float) -> None:
        self.slow.append(round(seconds, 6))


class Rank:
    """What one rank learns."""

    def __init__(self, rank: int) -> None:
        self._rank, self._output, self.metrics = rank, io.StringIO(), Noted()
        self._stragglers = Stragglers(Log(f"w-{rank}", stream=self._output), self.metrics)

    def steps(self, members: tuple[Member, ...], *seconds: float, count: int = STEPS, batch_size: int = BATCH) -> None:
        for _ in range(count):
            self._stragglers.step(members, self._rank, seconds, batch_size)

    @property
    def events(self) -> list[dict[str, str]]:
        return [parse(line) for line in self._output.getvalue().splitlines()]


def members(*names: str) -> tuple[Member, ...]:
    return tuple(Member(f"{name}-id", name, f"10.0.0.{index}", 1, "", 0) for index, name in enumerate(names))


def test_rank_0_names_it_once_and_says_when_it_is_over_and_the_slow_one_has_it_in_its_metrics() -> None:
    ranks, all_ = [Rank(rank) for rank in range(3)], members("a", "b", "c")
    for each in ranks:
        each.steps(all_, 0.0, 0.0, 0.0, count=1)  # the first step of a generation: there was none before it
        each.steps(all_, 0.1, 0.1, 0.25)
        each.steps(all_, 0.1, 0.1, 0.25)
        each.steps(all_, 0.1, 0.1, 0.1)
    first, last = ranks[0].events
    assert (first["event"], first["peer"], first["host"], first["rank"]) == ("straggler", "c", "10.0.0.2", "2")
    assert (first["seconds"], first["others_seconds"], first["steps"]) == ("0.25", "0.1", str(STEPS))
    assert (last["event"], last["peer"]) == ("straggler_over", "c")
    assert ranks[1].events == ranks[2].events == []
    assert [each.metrics.slow for each in ranks] == [[0.0] * 3, [0.0] * 3, [0.15, 0.15, 0.0]]


def test_a_change_of_the_membership_begins_a_new_count_and_repeats_no_name() -> None:
    rank, before, after = Rank(0), members("a", "b"), members("a", "c", "b")
    rank.steps(before, 0.1, 0.3, count=STEPS + 1)
    rank.steps(before, 0.1, 0.3, count=STEPS - 1)
    rank.steps(after, 0.0, 0.0, 0.0, count=1)
    rank.steps(after, 0.1, 0.1, 0.3)
    assert [(each["event"], each["peer"]) for each in rank.events] == [("straggler", "b")]
    assert len(rank.metrics.slow) == 2


def test_steps_in_which_a_rank_has_no_sample_do_not_count() -> None:
    rank = Rank(0)
    rank.steps(members("a", "b"), 0.1, 0.3, batch_size=1, count=3 * STEPS)
    assert (rank.events, rank.metrics.slow) == ([], [])


def test_a_worker_alone_is_not_slow() -> None:
    rank = Rank(0)
    rank.steps(members("a"), 0.1, count=3 * STEPS)
    assert (rank.events, rank.metrics.slow) == ([], [])


def test_the_time_of_ones_own_part_is_that_since_the_last_sum_without_waits_and_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("tidewater.elastic.peer.stragglers.time.monotonic", lambda: now[0])
    stragglers = Stragglers(Log("w", stream=io.StringIO()), Metrics())
    stragglers.begin()
    assert stragglers.work_seconds == 0.0
    now[0] += 3.0
    stragglers.worked(1.0)
    assert stragglers.work_seconds == 2.0
    now[0] += 1.0
    stragglers.together()
    now[0] += 0.5
    stragglers.worked(0.25)
    assert stragglers.work_seconds == 0.25
    stragglers.worked(7.0)
    assert 0 < stragglers.work_seconds < 1e-6
    stragglers.begin()
    assert stragglers.work_seconds == 0.0


def test_noise_names_no_rank_among_equal_ones() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        steps = [Observation([draw.lognormvariate(-2.3, 0.3) for _ in range(8)], BATCH) for _ in range(STEPS)]
        assert slowest(steps, None) is None
