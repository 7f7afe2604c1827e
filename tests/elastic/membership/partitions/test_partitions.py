"""Random partitions, losses and joins of many members: never do two generations both make steps.

pytest tests/elastic/membership/partitions/test_partitions.py                                 # two seeds
TIDEWATER_PARTITIONS=0:20 pytest tests/elastic/membership/partitions/test_partitions.py       # twenty
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator

import pytest

from tests.elastic.membership.partitions.world import LEASE_SECONDS, World
from tidewater.elastic.membership import votes
from tidewater.elastic.membership.deciders import DECIDERS
from tidewater.elastic.observe.log import Log

MEMBERS = 40
CHANGES = 6
KINDS = ("sides", "first", "first-without-etcd", "without-etcd", "replaced", "no-etcd", "kill", "kill-first", "join")
CALM_SECONDS = 300.0
SEEDS = range(*map(int, os.environ.get("TIDEWATER_PARTITIONS", "0:2").split(":")))


@pytest.fixture
def world(quiet: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(votes, "_GROUP", 8)
    world = World(MEMBERS, quiet)
    yield world
    world.close()


def happens(world: World, chance: random.Random) -> str:
    """Let something happen. Return what."""
    names = sorted(world.living, key=lambda name: int(name[1:]))
    first = [seat.id for seat in world.seats if seat.id in world.living][:DECIDERS]
    kind = chance.choice(KINDS)
    some = chance.sample(names, chance.randint(1, len(names) // 2))
    if kind == "sides":
        world.cut({name: chance.randint(0, 2) for name in names}, etcd=chance.randint(0, 2))
    elif kind == "first":
        world.cut(dict.fromkeys(first, 1))
    elif kind == "first-without-etcd":
        world.cut({}, away=first)
    elif kind == "without-etcd":
        world.cut({}, away=some)
    elif kind == "replaced":
        world.cut({}, away=names)
        world.start(f"m{world.started}")
    elif kind == "no-etcd":
        world.cut({}, etcd=-1)
    elif kind == "join":
        for _ in range(chance.randint(1, 3)):
            world.start(f"m{world.started}")
    else:
        world.kill(first if kind == "kill-first" else some[:10])
    return kind


def assert_one_history(steps: list[tuple[int, int]], story: list[str]) -> None:
    """Assert that no generation makes a step after a later one has, and that only a new one begins again."""
    for (before, last), (number, step) in itertools.pairwise(steps):
        assert number >= before, f"{number} has made step {step} after {before} made {last}: {story}"
        assert step == last + 1 or number > before, f"{number} has made step {step} after {last}: {story}"


@pytest.mark.e2e
@pytest.mark.parametrize("seed", SEEDS)
def test_through_random_partitions_and_losses_there_is_one_history_and_training_goes_on(
    world: World, seed: int
) -> None:
    chance, story = random.Random(seed), []
    assert world.run(seconds=CALM_SECONDS, until=world.all_train)
    for _ in range(CHANGES):
        story.append(happens(world, chance))
        # Up to longer than a takeover, which begins some leases after the loss of the last record.
        world.run(seconds=chance.choice([0.2, 1.0, 3.0 * LEASE_SECONDS, 8.0 * LEASE_SECONDS]))
        if chance.random() < 0.5:
            story.append("healed")
            world.cut({})
            world.run(seconds=chance.choice([0.0, 1.0, 3.0]))
        assert_one_history(world.steps, story)
    world.cut({})
    before = len(world.steps)
    assert world.run(seconds=CALM_SECONDS, until=lambda: len(world.steps) > before and world.all_train()), story
    assert_one_history(world.steps, story)


def test_newcomers_make_no_step_while_those_before_them_may_still_train_without_etcd(world: World) -> None:
    assert world.run(seconds=CALM_SECONDS, until=world.all_train)
    number = world.steps[-1][0]
    world.cut({}, away=list(world.living))
    for _ in range(3):
        world.start(f"m{world.started}")
    assert world.run(seconds=CALM_SECONDS, until=lambda: len(world.seats) == 3)
    world.run(seconds=1.0)
    assert_one_history(world.steps, [])
    assert world.steps[-1][0] > number
    world.cut({})
    assert world.run(seconds=CALM_SECONDS, until=world.all_train)
    assert_one_history(world.steps, [])


def test_a_member_that_waits_replaces_the_first_ones_that_were_killed_together(world: World) -> None:
    assert world.run(seconds=CALM_SECONDS, until=world.all_train)
    number = world.steps[-1][0]
    world.kill([seat.id for seat in world.seats[:5]])
    assert world.run(seconds=CALM_SECONDS, until=world.all_train)
    assert world.steps[-1][0] == number + 1
    assert_one_history(world.steps, [])


def test_the_first_members_without_etcd_are_followed_by_others_without_them(world: World) -> None:
    assert world.run(seconds=CALM_SECONDS, until=world.all_train)
    away = [seat.id for seat in world.seats[:DECIDERS]]
    world.cut({}, away=away)
    goes_on = lambda: not {seat.id for seat in world.seats} & set(away)  # noqa: E731
    assert world.run(seconds=CALM_SECONDS, until=goes_on)
    world.cut({})
    assert world.run(seconds=CALM_SECONDS, until=world.all_train)
    assert_one_history(world.steps, [])
