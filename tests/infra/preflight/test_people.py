"""Who has another access entry than the stack would make is refused before anything is made, with a way to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import settings
from infra.preflight import people
from infra.preflight.cluster import Inside
from infra.preflight.login import Login
from tests import graph
from tests.infra.policies.test_teams import ADA, BOB, TEAMS
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.cluster.test_own_cluster import own_cluster
from tests.infra.preflight.world import region, stack


@pytest.mark.parametrize(
    ("caller", "arns"),
    [
        (BOB, [BOB, BOB]),
        (f"arn:aws:sts::{graph.ACCOUNT}:assumed-role/ada/session", [ADA]),
        (f"arn:aws:iam::{graph.ACCOUNT}:user/operator", []),
        ("", []),
    ],
)
def test_the_one_who_deploys_is_in_no_team(caller: str, arns: list[str]) -> None:
    wanted = stack(**TEAMS)
    found = people.mistakes(wanted, replace(region(wanted), login=Login(graph.ACCOUNT, graph.ACCOUNT, caller=caller)))
    assert [each.partition(" = ")[2].partition(": deploys this stack")[0] for each in found] == arns


def test_that_is_refused_before_anything_is_registered() -> None:
    operator = f"arn:aws:iam::{graph.ACCOUNT}:user/operator"
    teams = [{"name": "vision", "userArns": [operator], "maxWorkers": 1}]
    found = graph.Graph()
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), "fileAccess": "iam", "teams": teams}
    with pytest.raises(settings.ConfigurationError, match=r"teams\.vision\.userArns = .*: deploys this stack now"):
        graph.run(graph.program, config, "production", graph=found)
    assert not found.all("aws:iam/role:Role")


def mistakes(wanted: settings.Settings, entries: Mapping[str, tuple[str, ...]], *foreign: str) -> list[str]:
    inside = Inside(entries=entries, foreign=frozenset(foreign))
    return people.mistakes(wanted, replace(region(wanted), inside=inside))


def test_who_is_an_administrator_or_the_creator_gets_into_a_team_with_the_next_update() -> None:
    ada, bob, bob_again = mistakes(stack(**TEAMS), {ADA: (), BOB: ("platform",)})
    assert ada.startswith(f"teams.vision.userArns = {ADA}: has an access entry on the cluster tidewater-dev already")
    assert "if it is that of adminArns, run `pulumi up` without the person in both, then add it to the team" in ada
    assert ada.endswith(f"aws eks delete-access-entry --cluster-name tidewater-dev --principal-arn {ADA}")
    assert [each.partition(" = ")[0] for each in (bob, bob_again)] == ["teams.vision.userArns", "teams.speech.userArns"]


def test_who_is_in_a_team_becomes_an_administrator_with_the_next_update() -> None:
    wanted = stack(adminArns=[ADA, BOB])
    (mistake,) = mistakes(wanted, {ADA: ("tidewater:vision",), BOB: ()})
    assert mistake.startswith(
        f"adminArns = {ADA}: has the access entry of a team's people on the cluster tidewater-dev"
    )
    assert mistake.endswith("run `pulumi up` without it in both, then add it")


def test_who_has_the_entry_of_the_stack_keeps_it_in_any_team() -> None:
    assert mistakes(stack(**TEAMS), {ADA: ("tidewater:speech",), BOB: ("tidewater:vision", "tidewater:speech")}) == []
    assert mistakes(stack(adminArns=[ADA]), {ADA: ()}) == []


def test_an_administrator_with_an_entry_of_another_maker_is_refused_with_the_way_out() -> None:
    (mistake,) = mistakes(stack(adminArns=[ADA, BOB]), {ADA: (), BOB: ()}, BOB)
    assert mistake.startswith(f"adminArns = {BOB}: has an access entry on the cluster tidewater-dev that this stack")
    assert (
        f"if it is that of the cluster's creator, who administers the cluster by it, remove {BOB} from admin" in mistake
    )
    assert mistake.endswith(f"aws eks delete-access-entry --cluster-name tidewater-dev --principal-arn {BOB}")


def test_an_entry_with_a_teams_group_that_another_maker_gave_is_in_the_way_too() -> None:
    (mistake,) = mistakes(stack(**TEAMS), {ADA: ("tidewater:vision",), BOB: ("tidewater:vision",)}, ADA)
    assert mistake.startswith(
        f"teams.vision.userArns = {ADA}: has an access entry on the cluster tidewater-dev already"
    )
    (mistake,) = mistakes(stack(adminArns=[ADA]), {ADA: ("tidewater:vision",)}, ADA)
    assert "that this stack has not made" in mistake


def test_the_creator_who_is_added_later_is_refused_before_anything_is_registered() -> None:
    tags: dict[str, str] = {}

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if not token.endswith(":getAccessEntry"):
            return own_cluster()(token, arguments)
        return {**arguments, "kubernetesGroups": [], "tags": dict(tags)}

    made = graph.Graph()
    config = {**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], "adminArns": [ADA]}
    with pytest.raises(settings.ConfigurationError, match=f"{ADA}: has an access entry .* this stack has not made"):
        graph.run(graph.program, config, ask=ask, graph=made)
    assert not made.all("aws:iam/role:Role")
    tags.update(settings.parse(graph.defaults(), stack="local").own_tags)
    assert graph.run(graph.program, config, ask=ask).all("aws:iam/role:Role"), "the stack's own entry is none of others"


def test_the_entries_of_an_owner_stay_as_they_are() -> None:
    (mistake,) = mistakes(stack(**{**existing_cluster.CONFIG, **TEAMS}), {ADA: ("platform",)})
    assert "already, and EKS has one for each principal; remove it from the team, or ask the cluster's owner" in mistake
    assert existing_cluster.NAME in mistake


@pytest.mark.parametrize(
    ("changes", "groups"),
    [({**TEAMS, "adminArns": []}, []), ({"adminArns": [ADA]}, ["tidewater:vision"])],
    ids=["from adminArns to a team", "from a team to adminArns"],
)
def test_a_move_is_refused_before_anything_is_registered(changes: dict[str, Any], groups: list[str]) -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if not token.endswith(":getAccessEntry"):
            return own_cluster()(token, arguments)
        if arguments["principalArn"] != ADA:
            raise graph.Refused("reading EKS Access Entry (x): couldn't find resource")
        return {**arguments, "kubernetesGroups": groups}

    made = graph.Graph()
    config = {**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], **changes}
    with pytest.raises(settings.ConfigurationError, match=f"{ADA}: has (an|the) access entry"):
        graph.run(graph.program, config, ask=ask, graph=made)
    assert not made.all("aws:iam/role:Role")
