"""Who may have how many workers in the end: own ones always, others' while these don't want them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.sharing.claims import TWO, claim, cohort
from tidewater.contract.controller_program import Quota
from tidewater.controller.sharing.claims import Claim, Key
from tidewater.controller.sharing.targets import targets, waits_its_turn

SEEDS = st.integers(0, 2**32)


def workers(*claims: Claim, quotas: dict[str, Quota] = TWO) -> list[int]:
    """Return the numbers of workers that the jobs may have; 0: none."""
    found = targets(claims, quotas)
    return [each.sizes[found[each.key]].workers if each.key in found else 0 for each in claims]


def test_a_team_borrows_what_the_other_leaves_up_to_its_limit() -> None:
    assert workers(claim("vision", 1, 4)) == [4]
    assert workers(claim("vision", 1, 9)) == [4]
    assert workers(claim("vision", 1, 4), quotas={**TWO, "vision": Quota(2, 3)}) == [3]


def test_the_owner_gets_its_workers_and_the_borrower_shrinks_but_not_below_its_own() -> None:
    assert workers(claim("vision", 1, 4, held=4), claim("speech", 2, 2)) == [2, 2]
    assert workers(claim("vision", 1, 4, held=4), claim("speech", 1, 4)) == [2, 2]
    assert workers(claim("vision", 1, 4, held=4), claim("speech", 1, 1)) == [3, 1]


def test_a_borrowed_minimum_goes_only_when_no_growth_is_left_to_take_back() -> None:
    quotas = {"a": Quota(2, 6), "b": Quota(2, 6), "c": Quota(2, 2)}
    grown, whole = claim("a", 2, 3, held=3), claim("b", 3, 3, held=3)
    assert workers(grown, whole, claim("c", 1, 1), quotas=quotas) == [2, 3, 1]
    assert workers(grown, whole, claim("c", 2, 2), quotas=quotas) == [3, 0, 2], "then it is free for others"


def test_an_owners_growth_within_its_quota_comes_before_a_borrowed_minimum() -> None:
    assert workers(claim("vision", 3, 3, held=3), claim("speech", 1, 2)) == [0, 2]


def test_the_own_job_that_waits_comes_before_the_growth_of_one_that_runs() -> None:
    assert workers(claim("vision", 1, 4, "a", held=4), claim("vision", 3, 3, "b")) == [1, 3]


def test_a_job_that_runs_keeps_its_minimum_whatever_the_priority_of_one_of_its_team_that_waits() -> None:
    quotas = {"vision": Quota(2, 2)}
    found = workers(claim("vision", 2, 2, "a", held=2), claim("vision", 1, 1, "b", priority=9), quotas=quotas)
    assert found == [2, 0]


def test_a_job_that_waits_does_not_displace_one_of_its_team_that_runs_with_borrowed_workers() -> None:
    quotas = {"vision": Quota(3, 6), "speech": Quota(3, 3)}
    started = claim("vision", 2, 2, "a", held=2), claim("vision", 2, 2, "b", held=2)
    waits = claim("vision", 1, 1, "c", priority=9)
    assert workers(*started, waits, claim("speech", 2, 2), quotas=quotas) == [2, 2, 0, 2]
    assert workers(*started, waits, claim("speech", 3, 3), quotas=quotas) == [2, 0, 1, 3]


def test_no_later_job_passes_one_that_fits_into_the_quota_but_one_that_must_borrow_stops_no_other() -> None:
    quotas = {"vision": Quota(3, 9), "speech": Quota(3, 3)}
    others = claim("speech", 3, 3, held=3), claim("vision", 1, 1, "a", held=1)
    assert workers(*others, claim("vision", 3, 3, "b", age=9), claim("vision", 1, 1, "c"), quotas=quotas)[2:] == [0, 0]
    assert workers(*others, claim("vision", 4, 4, "b", age=9), claim("vision", 1, 1, "c"), quotas=quotas)[2:] == [0, 1]


def test_two_borrowers_share_in_proportion_to_their_quotas() -> None:
    quotas = {"a": Quota(2, 20), "b": Quota(4, 20), "c": Quota(6, 6)}
    assert workers(claim("a", 1, 20), claim("b", 1, 20), quotas=quotas) == [4, 8]


def test_a_team_without_a_quota_of_its_own_borrows_after_the_others() -> None:
    quotas = {"a": Quota(0, 9), "b": Quota(1, 9), "c": Quota(3, 3)}
    assert workers(claim("a", 1, 3), claim("b", 1, 3), quotas=quotas) == [1, 3]
    assert workers(claim("a", 1, 3), quotas=quotas) == [3]


@settings(max_examples=500)
@given(SEEDS)
def test_no_more_is_given_than_there_is_and_no_team_gets_more_than_its_most(seed: int) -> None:
    made = cohort(seed)
    found = targets(made.claims, made.quotas)
    used = {team: made.used(found, team) for team in made.quotas}
    assert sum(used.values()) <= made.all
    assert all(used[team] <= quota.most for team, quota in made.quotas.items())


@settings(max_examples=500)
@given(SEEDS)
def test_what_a_team_has_of_its_own_depends_on_no_other_team(seed: int) -> None:
    made = cohort(seed)
    found = targets(made.claims, made.quotas)
    for team, quota in made.quotas.items():
        own = [each for each in made.claims if each.team == team]
        alone = targets(own, {team: Quota(quota.nominal, quota.nominal)})
        assert {each.key for each in own if each.started and each.key in alone} <= found.keys()
        assert made.used(found, team) >= made.used(alone, team)


@settings(max_examples=500)
@given(SEEDS)
def test_no_started_job_loses_its_minimum_while_growth_with_borrowed_workers_would_give_it_back(seed: int) -> None:
    made = cohort(seed, even=True)
    found = targets(made.claims, made.quotas)
    least: dict[Key, int] = dict.fromkeys(found, 0)
    own = {team: min(made.used(found, team), quota.nominal) for team, quota in made.quotas.items()}
    for lost in [each for each in made.claims if each.started and each.key not in found]:
        used = {team: made.used(least, team) + (lost.least if team == lost.team else 0) for team in made.quotas}
        without_growth = sum(max(used[team], own[team]) for team in used)
        assert without_growth > made.all or used[lost.team] > made.quotas[lost.team].most


@settings(max_examples=500)
@given(SEEDS)
def test_what_is_left_is_too_little_for_every_job_that_lacks_something(seed: int) -> None:
    made = cohort(seed, even=True)
    found = targets(made.claims, made.quotas)
    free = made.all - sum(made.used(found, team) for team in made.quotas)
    for each in made.claims:
        room = min(free, made.quotas[each.team].most - made.used(found, each.team))
        if each.key in found:
            assert room == 0 or found[each.key] == len(each.sizes) - 1
        elif waits_its_turn(each, made.quotas) and is_first(each, made.claims, found):
            assert room < each.least


def is_first(one: Claim, claims: tuple[Claim, ...], found: dict[Key, int]) -> bool:
    """Return whether no job that waits and has nothing is before this one in its team."""
    return all(one.rank <= each.rank for each in claims if each.team == one.team and each.key not in found)


@settings(max_examples=500)
@given(SEEDS)
def test_jobs_that_start_keep_what_they_have_got(seed: int) -> None:
    made = cohort(seed)
    found = targets(made.claims, made.quotas)
    later = targets([replace(each, started=each.key in found) for each in made.claims], made.quotas)
    assert later.keys() >= found.keys()


def test_a_job_that_wants_no_pods_gets_none() -> None:
    assert targets([replace(claim("vision", 1, 2), sizes=())], TWO) == {}
