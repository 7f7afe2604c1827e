"""An experiment of AWS FIS interrupts the Spot Instances that its target selects."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.aws.events.fis import ACTION, BadExperiment, Candidate, planned

WORKER = {"role": "worker", "team": "a"}
CANDIDATES = [
    Candidate("i-1", "spot", WORKER, {"Placement.AvailabilityZone": "us-west-2a"}),
    Candidate("i-2", "spot", WORKER, {"Placement.AvailabilityZone": "us-west-2b"}),
    Candidate("i-3", None, WORKER),
    Candidate("i-4", "spot", {"role": "other"}),
]
ARN = "arn:aws:ec2:us-west-2:123456789012:instance/"


def action(duration: str = "PT2M", kind: str = ACTION) -> dict[str, Any]:
    return {
        "end": {
            "actionId": kind,
            "parameters": {"durationBeforeInterruption": duration},
            "targets": {"SpotInstances": "chosen"},
        }
    }


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param({"resourceArns": [f"{ARN}i-1", f"{ARN}i-3", f"{ARN}i-9"]}, ["i-1"], id="by ARN"),
        pytest.param({"resourceTags": {"role": "worker"}}, ["i-1", "i-2"], id="by tag"),
        pytest.param({"resourceTags": {"role": "worker", "team": "b"}}, [], id="by all tags"),
        pytest.param(
            {
                "resourceTags": {"role": "worker"},
                "filters": [{"path": "Placement.AvailabilityZone", "values": ["us-west-2b", "us-west-2c"]}],
            },
            ["i-2"],
            id="by a filter",
        ),
        pytest.param({}, [], id="nothing"),
    ],
)
def test_only_the_spot_instances_of_the_target_are_interrupted(target: dict[str, Any], expected: list[str]) -> None:
    plans = planned({"chosen": {**target, "selectionMode": "ALL"}}, action(), CANDIDATES)
    assert [instances for instances, _ in plans] == ([expected] if expected else [])


@pytest.mark.parametrize(("mode", "number"), [("ALL", 2), ("COUNT(1)", 1), ("COUNT(9)", 2), ("PERCENT(50)", 1)])
def test_the_selection_mode_says_how_many(mode: str, number: int) -> None:
    target = {"resourceTags": {"role": "worker"}, "selectionMode": mode}
    ((instances, seconds),) = planned({"chosen": target}, action("PT5M"), CANDIDATES)
    assert (len(instances), seconds) == (number, 300.0)


def test_other_actions_have_no_effect() -> None:
    target = {"resourceTags": {"role": "worker"}, "selectionMode": "ALL"}
    assert planned({"chosen": target}, action(kind="aws:ec2:stop-instances"), CANDIDATES) == []


@pytest.mark.parametrize(
    ("target", "duration", "text"),
    [
        pytest.param({}, "PT1M", "'PT1M' must be from PT2M to PT15M", id="duration"),
        pytest.param({"filters": [{"path": "Tags", "values": ["a"]}]}, "PT2M", "filter Tags is none of", id="filter"),
    ],
)
def test_what_is_not_understood_interrupts_nothing(target: dict[str, Any], duration: str, text: str) -> None:
    chosen = {"resourceTags": {"role": "worker"}, "selectionMode": "ALL", **target}
    with pytest.raises(BadExperiment, match=text):
        planned({"chosen": chosen}, action(duration), CANDIDATES)
