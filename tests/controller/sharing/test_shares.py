"""How a team's jobs come to what they may have, while others still give it back, and what people read meanwhile."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.sharing.claims import TWO, Cohort, claim, cohort, units
from tidewater.contract.controller_program import Quota
from tidewater.controller.sharing.claims import Claim
from tidewater.controller.sharing.shares import Share, shares
from tidewater.controller.sharing.targets import targets

SEEDS = st.integers(0, 2**32)
NONE_LEFT = "too few are left of the 2 of team vision, and other teams lend no more"


def found(*claims: Claim, quotas: dict[str, Quota] = TWO) -> list[Share]:
    """Return the jobs' shares in their order."""
    made = shares(claims, quotas)
    return [made[each.key] for each in claims]


def test_the_owner_waits_until_the_borrowers_pods_are_gone() -> None:
    borrower, owner = claim("vision", 1, 4, held=4), claim("speech", 2, 2)
    assert found(borrower, owner) == [
        Share(2, "gives back 2 workers to team speech"),
        Share(0, "waits for 2 workers: team vision gives back 2 workers"),
    ]
    assert found(replace(borrower, held=3), owner) == [
        Share(2, "gives back 1 worker to team speech"),
        Share(0, "waits for 2 workers: team vision gives back 1 worker"),
    ]
    assert found(replace(borrower, held=2), owner) == [Share(2, f"may have 2 of 4 workers: {NONE_LEFT}"), Share(2)]


def test_an_owner_that_runs_grows_with_each_worker_that_is_given_back() -> None:
    owner = claim("speech", 1, 2, held=1)
    assert found(claim("vision", 1, 3, held=3), owner)[1] == Share(
        1, "may have 1 of 2 workers: team vision gives back 1 worker"
    )
    assert found(claim("vision", 1, 3, held=2), owner)[1] == Share(2)


def test_pods_of_jobs_that_want_none_are_waited_for() -> None:
    ended = replace(claim("vision", 1, 4, "a", held=3), sizes=())
    assert shares([claim("speech", 2, 2), ended], TWO) == {
        ("speech", "j"): Share(0, "waits for 2 workers: team vision gives back 3 workers")
    }


def test_a_borrowed_minimum_is_given_back_as_a_whole() -> None:
    borrower, owner = claim("vision", 4, 4, held=4), claim("speech", 1, 1)
    assert found(borrower, owner)[0] == Share(0, "gives back 4 workers to team speech")
    waits = replace(borrower, started=False, held=0)
    assert found(waits, replace(owner, started=True, held=1)) == [
        Share(0, f"waits for 4 workers: {NONE_LEFT}"),
        Share(1),
    ]


def test_workers_can_go_to_another_job_of_the_same_team() -> None:
    quotas = {"vision": Quota(4, 4)}
    shrinks, comes = found(claim("vision", 1, 4, "a", held=4), claim("vision", 2, 2, "b"), quotas=quotas)
    assert shrinks == Share(2, "gives back 2 workers to another job of team vision")
    assert comes == Share(0, "waits for 2 workers: team vision gives back 2 workers")


def test_two_teams_that_wait_are_both_named() -> None:
    quotas = {"vision": Quota(2, 6), "speech": Quota(2, 2), "text": Quota(2, 2)}
    first, *_ = found(claim("vision", 1, 6, held=6), claim("speech", 2, 2), claim("text", 2, 2), quotas=quotas)
    assert first.why == "gives back 4 workers to teams speech and text"


def test_a_job_that_can_never_start_says_so() -> None:
    assert found(claim("vision", 5, 5)) == [Share(0, "needs 5 workers, and team vision may have 4")]
    assert found(claim("vision", 5, 5), quotas={"vision": Quota(2, 9)}) == [
        Share(0, "needs 5 workers, and the quotas of all teams are 2 together")
    ]


def test_a_job_behind_another_of_its_team_names_it() -> None:
    quotas = {"vision": Quota(2, 2)}
    running, first, second = claim("vision", 1, 1, "a", held=1), claim("vision", 2, 2, "b"), claim("vision", 1, 1, "c")
    assert found(running, first, second, quotas=quotas)[2].why == "waits for 1 worker: b of its team comes first"


@settings(max_examples=300)
@given(SEEDS, st.booleans())
def test_jobs_come_to_their_targets_never_below_their_minimum_and_never_with_more_than_there_is(
    seed: int, others_come: bool
) -> None:
    made, random = cohort(seed), Random(seed)
    made = run(made, random)
    if others_come:
        waiting = [replace(each, started=False, held=0) for each in cohort(seed + 1).claims if each.team in made.quotas]
        came = {each.key: each for each in (*waiting, *made.claims)}
        run(Cohort(made.quotas, tuple(came.values())), random)


def run(made: Cohort, random: Random) -> Cohort:
    """Let jobs follow their shares, and their pods end one after the other, until nothing changes; check it."""
    too_many = sum(each.held for each in made.claims) > made.all
    for _ in range(200):
        aims, now = targets(made.claims, made.quotas), shares(made.claims, made.quotas)
        claims = tuple(following(each, now[each.key], random) for each in made.claims)
        for before, after in zip(made.claims, claims, strict=True):
            if before.started and before.key in aims:
                assert after.held >= before.least
        held = sum(each.held for each in claims)
        too_many = too_many and held > made.all
        assert too_many or held <= made.all
        if claims == made.claims:
            assert {each.key: each.held for each in claims if each.held} == {
                each.key: each.sizes[aims[each.key]].units for each in claims if each.key in aims
            }
            return made
        made = replace(made, claims=claims)
    raise AssertionError("the jobs come to no rest")


def following(one: Claim, share: Share, random: Random) -> Claim:
    """Return a job after it has done what its share says: pods come at once, and some that must end are gone."""
    allowed = units(one, share)
    if allowed >= one.held:
        return replace(one, held=allowed, started=allowed > 0)
    held = random.randint(allowed, one.held - 1)
    return replace(one, held=held, started=allowed > 0)


@pytest.mark.parametrize("held", [1, 3])
def test_a_job_that_runs_with_less_or_more_than_it_wants_says_nothing_of_it(held: int) -> None:
    """A pod that failed is replaced, or two exist for a while."""
    assert found(claim("vision", 2, 2, held=held)) == [Share(2)]
