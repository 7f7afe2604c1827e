"""The comparison of Karpenter with a node group: turns in every round, and what the file has is not measured again."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.nodes import __main__ as command
from benchmarks.nodes import plan
from benchmarks.nodes.results import KARPENTER, NODEGROUP, SYSTEMS, WHOLE, named


def nothing(measure: str, system: str) -> int:
    return 0


def test_the_systems_take_turns_in_every_round() -> None:
    turns = plan.wanted(SYSTEMS, turns=2, have=nothing)
    assert [(turn.number, turn.system) for turn in turns] == [
        (0, KARPENTER),
        (0, NODEGROUP),
        (1, NODEGROUP),
        (1, KARPENTER),
    ]


def test_a_turn_that_the_file_has_is_not_made_again() -> None:
    had = Counter({(named(1, plan.LARGE, WHOLE), KARPENTER): 1})
    turns = plan.wanted(SYSTEMS, turns=2, have=lambda *key: had[key])
    assert [(turn.number, turn.system) for turn in turns] == [(0, NODEGROUP), (1, NODEGROUP), (1, KARPENTER)]


def test_a_turn_grows_to_two_and_to_eight() -> None:
    assert set(plan.Turn(KARPENTER, 0).changes) == {2, 8}
    assert plan.Turn(KARPENTER, 0).changes[-1] == plan.LARGE  # by which a whole turn is known


def test_the_plan_says_how_long_it_takes() -> None:
    told = plan.told(plan.wanted(SYSTEMS, turns=3, have=nothing)).splitlines()
    assert [line.split()[:2] for line in told[:2]] == [[KARPENTER, "3"], [NODEGROUP, "3"]]
    assert told[-1].startswith("in all")


def test_an_unknown_system_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse(["--systems", "karpenter,autoscaler"])
    assert "autoscaler" in capsys.readouterr().err
