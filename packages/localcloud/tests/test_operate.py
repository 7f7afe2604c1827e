"""`localcloud interrupt` and `localcloud capacity` send their arguments to the daemon, and say what it did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from localcloud import cli
from localcloud.instance import Instance

from packages.localcloud.tests.commands import served


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance.create(tmp_path / "state")


def told(instance: Instance, answer: Any, *arguments: str) -> Mapping[str, Any]:
    """Run a command line with a daemon that gives this answer; return the parameters that the daemon got."""
    got: list[Mapping[str, Any]] = []

    def command(params: Mapping[str, Any]) -> Any:
        got.append(params)
        return answer

    with served(instance, {"interrupt": command, "capacity": command}):
        assert cli.main([*arguments, "--state", str(instance.state)]) == 0
    return got[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["i-1", "i-2"], {"instances": ["i-1", "i-2"], "event": "notice"}),
        (["i-1", "--after", "30"], {"instances": ["i-1"], "event": "notice", "after": 30.0}),
        (["i-1", "--rebalance"], {"instances": ["i-1"], "event": "rebalance"}),
        (["i-1", "--retire"], {"instances": ["i-1"], "event": "retire"}),
    ],
)
def test_an_interruption_is_asked_for(instance: Instance, arguments: list[str], expected: Any) -> None:
    assert told(instance, {"ends": {}}, "interrupt", *arguments) == expected


def test_the_end_of_an_interrupted_instance_is_said(instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    told(instance, {"ends": {"i-1": "2026-01-01T00:02:00Z"}}, "interrupt", "i-1")
    assert capsys.readouterr().out == "i-1 has its notice and ends at 2026-01-01T00:02:00Z\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["--restore"], {"restore": True}),
        (["--none", "m5.large, c5.*"], {"none": {"types": ["m5.large", "c5.*"], "zone": None, "market": None}}),
        (
            ["--none", "*", "--zone", "us-west-2a", "--on-demand"],
            {"none": {"types": ["*"], "zone": "us-west-2a", "market": "on-demand"}},
        ),
        (["--none", "*", "--spot"], {"none": {"types": ["*"], "zone": None, "market": "spot"}}),
        (["--none", ""], {"none": {"types": [], "zone": None, "market": None}}),
    ],
)
def test_a_change_of_capacity_is_asked_for(instance: Instance, arguments: list[str], expected: Any) -> None:
    assert told(instance, {"shortages": []}, "capacity", *arguments) == expected


def test_the_shortages_are_shown(instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    told(instance, {"shortages": []}, "capacity")
    told(instance, {"shortages": ["no capacity for m5.large", "no capacity for c5.large"]}, "capacity")
    assert capsys.readouterr().out.splitlines() == [
        "there is capacity for every instance type",
        "no capacity for m5.large",
        "no capacity for c5.large",
    ]


@pytest.mark.parametrize("where", [["--zone", "us-west-2a"], ["--spot"], ["--restore", "--on-demand"]])
def test_a_place_without_types_is_an_error(
    instance: Instance, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["capacity", *where, "--state", str(instance.state)]) == 1
    assert "--none" in capsys.readouterr().err
