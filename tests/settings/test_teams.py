"""Every mistake about teams is one sentence with the value and the remedy, and all are found at once."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from tests import graph

ROLE, USER = "arn:aws:iam::123456789012:role/ml/vision", "arn:aws:iam::123456789012:user/ada"
VISION: dict[str, Any] = {"name": "vision", "userArns": [ROLE, USER], "minWorkers": 2, "maxWorkers": 4}
SPEECH: dict[str, Any] = {"name": "speech", "userArns": [USER], "maxWorkers": 8}


def refused(*teams: Any, **changes: Any) -> list[str]:
    with pytest.raises(settings.ConfigurationError) as mistakes:
        graph.parsed(fileAccess="iam", teams=list(teams), **changes)
    return list(mistakes.value.mistakes)


def test_teams_are_read_with_a_person_in_two_of_them() -> None:
    found = graph.parsed(fileAccess="iam", teams=[VISION, SPEECH])
    assert found.teams == (settings.Team("vision", (ROLE, USER), 2, 4), settings.Team("speech", (USER,), 0, 8))
    assert found.file_iam


def test_numbers_may_be_text_as_the_command_line_stores_them() -> None:
    (team,) = graph.parsed(fileAccess="iam", teams=[{"name": "a", "maxWorkers": "4", "minWorkers": "1"}]).teams
    assert (team.minimum, team.maximum) == (1, 4)


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"minWorkers": 5}, "teams.vision.minWorkers = 5: is above the team's maxWorkers, which is 4; lower it"),
        ({"maxWorkers": 9}, "teams.vision.maxWorkers = 9: there are nodes for 8 workers at most; lower it"),
        ({"maxWorkers": 0, "minWorkers": 0}, "teams.vision.maxWorkers = 0: must be 1 or more"),
        ({"maxWorkers": True, "minWorkers": 0}, "teams.vision.maxWorkers = true: must be 1 or more"),
        ({"minWorkers": -1}, "teams.vision.minWorkers = -1: must be 0 or more"),
        (
            {"nominalWorkers": 1},
            "teams.vision.minWorkers = 2: is above the team's nominalWorkers, which is 1",
        ),
        (
            {"nominalWorkers": 5},
            "teams.vision.nominalWorkers = 5: is above the team's maxWorkers, which is 4",
        ),
        ({"nominalWorkers": -1}, "teams.vision.nominalWorkers = -1: must be 0 or more"),
        ({"nominalWorkers": "all"}, "teams.vision.nominalWorkers = all: must be 0 or more"),
        ({"name": "Vision"}, "teams = Vision: the name of a team must be 20 lower-case letters"),
        ({"name": ""}, 'teams = "": the name of a team must be'),
        ({"name": "a" * 21}, f"teams = {'a' * 21}: the name of a team must be 20"),
        ({"name": "default"}, "teams = default: is a namespace of Kubernetes; give the team another name"),
        ({"name": "kube-system"}, "teams = kube-system: is a namespace of Kubernetes"),
        ({"name": "amazon-cloudwatch"}, "teams = amazon-cloudwatch: is a namespace of AWS"),
        ({"name": "tidewater-system"}, "teams = tidewater-system: is a namespace of the ElasticJob controller"),
        ({"name": "training"}, "teams = training: is the stack's own namespace"),
        (
            {"userArns": ["arn:aws:sts::123456789012:assumed-role/vision/ada"]},
            "teams.vision.userArns = arn:aws:sts::123456789012:assumed-role/vision/ada: must be the ARN of an IAM role "
            "or user; of a session",
        ),
        ({"userArns": ["arn:aws:iam::123456789012:group/vision"]}, "must be the ARN of an IAM role or user"),
        ({"userArns": ["ada"]}, "teams.vision.userArns = ada: must be the ARN"),
        ({"userArns": [7]}, "teams.vision.userArns = 7: must be the ARN"),
        ({"userArns": [ROLE, ROLE]}, f"teams.vision.userArns = {ROLE}: is listed twice"),
        ({"quota": 4}, "must be an object with name and maxWorkers"),
        ({"userArns": ROLE}, "must be an object with name and maxWorkers"),
    ],
)
def test_a_wrong_team_is_one_sentence(changes: dict[str, Any], mistake: str) -> None:
    (found,) = refused({**VISION, **changes})
    assert mistake in found


def test_two_teams_of_one_name_are_refused() -> None:
    assert refused(VISION, {**SPEECH, "name": "vision"}) == [
        "teams = vision: is the name of 2 teams; give each team a name of its own"
    ]


def test_an_administrator_is_in_no_team() -> None:
    (found,) = refused(VISION, adminArns=[ROLE])
    assert found.startswith(f"teams.vision.userArns = {ROLE}: is in adminArns and has all rights already")


def test_minimums_above_what_the_nodes_have_room_for_are_refused() -> None:
    both = [{**VISION, "minWorkers": 4}, {**SPEECH, "minWorkers": 4}]
    (found,) = refused(*both)
    assert found.startswith(
        "teams = minWorkers 8: the teams' minWorkers and that of the stack's own job are 9 together"
    )
    assert len(graph.parsed(fileAccess="iam", teams=both, maxWorkers=9).teams) == 2


def test_nominal_workers_are_read() -> None:
    both = [{**VISION, "nominalWorkers": 3}, {**SPEECH, "nominalWorkers": "0"}]
    assert [team.nominal for team in graph.parsed(fileAccess="iam", teams=both).teams] == [3, 0]


def test_nominal_workers_above_what_the_nodes_have_room_for_are_refused() -> None:
    both = [{**VISION, "nominalWorkers": 4}, {**SPEECH, "nominalWorkers": 4}]
    assert refused(*both) == [
        "teams = nominalWorkers 8: the teams' nominalWorkers and the minWorkers of the stack's own job are 9 together, "
        "and there are nodes for 8 workers; lower some of them, or raise maxWorkers"
    ]
    assert len(graph.parsed(fileAccess="iam", teams=both, maxWorkers=9).teams) == 2


def test_nominal_workers_of_some_teams_only_are_refused() -> None:
    assert refused({**VISION, "nominalWorkers": 4}, SPEECH) == [
        "teams = speech: the other teams have nominalWorkers; give each team its own, 0 if it only borrows, or none to "
        "any"
    ]


def test_teams_that_have_nothing_to_lend_are_refused() -> None:
    (found,) = refused({"name": "a", "maxWorkers": 1, "nominalWorkers": 0})
    assert found.startswith("teams = nominalWorkers 0: no team could have a worker")


def test_all_mistakes_about_quotas_come_at_once() -> None:
    found = refused({**VISION, "nominalWorkers": 1}, {**SPEECH, "nominalWorkers": 9}, {"name": "text", "maxWorkers": 1})
    assert [each.partition(": ")[0] for each in found] == [
        "teams.vision.minWorkers = 2",
        "teams.speech.nominalWorkers = 9",
        "teams = text",
    ]


def test_all_mistakes_come_at_once_and_nothing_is_compared_with_a_wrong_value() -> None:
    found = refused({**VISION, "maxWorkers": "many", "userArns": ["ada"]}, {**SPEECH, "name": "kube-x"}, "vision")
    assert len(found) == 4
    (only,) = refused(VISION, maxWorkers=2000)
    assert only.startswith("maxWorkers = 2000: ")


def test_teams_need_a_file_system_that_pods_cant_mount_without_credentials() -> None:
    with pytest.raises(settings.ConfigurationError, match="fileAccess = vpc: with teams it must be iam"):
        graph.parsed(teams=[VISION])
