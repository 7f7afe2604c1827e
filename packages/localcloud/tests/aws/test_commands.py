"""What the daemon does for `localcloud interrupt` and `localcloud capacity`, and which parameters it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from localcloud.aws.commands import commands
from localcloud.aws.events.interruptions import Interruptions
from localcloud.control import Command
from localcloud.errors import CloudError

from packages.localcloud.tests.aws.account import serve_account
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION


@pytest.fixture(scope="module", autouse=True)
def _account() -> Iterator[str]:
    yield from serve_account()


@pytest.fixture
def given() -> Iterator[dict[str, Command]]:
    """The commands of an empty account; the test's shortages end with it."""
    made = dict(commands(Interruptions(ACCOUNT, REGION), ACCOUNT, REGION))
    yield made
    made["capacity"]({"restore": True})


@pytest.mark.parametrize(
    ("params", "text"),
    [
        pytest.param({}, "ids of instances", id="none"),
        pytest.param({"instances": "i-1"}, "ids of instances", id="no list"),
        pytest.param({"instances": ["i-1"], "event": "explode"}, "'explode' is none of notice", id="event"),
        pytest.param({"instances": ["i-1"], "after": -1}, "after -1 must be", id="before now"),
        pytest.param({"instances": ["i-1"], "after": 1e10}, "from 0 to 86400", id="never"),
        pytest.param({"instances": ["i-1"], "after": float("nan")}, "after nan must be", id="not a number"),
        pytest.param({"instances": ["i-1"], "after": "soon"}, "after 'soon' must be", id="no number"),
        pytest.param({"instances": ["i-1"]}, "no instance i-1", id="unknown"),
        pytest.param({"instances": ["i-1"], "event": "retire"}, "no instance i-1", id="nothing to retire"),
    ],
)
def test_an_interruption_that_cannot_be_is_refused(given: dict[str, Command], params: Any, text: str) -> None:
    with pytest.raises(CloudError, match=text):
        given["interrupt"](params)


def test_capacity_is_taken_away_shown_and_given_back(given: dict[str, Command]) -> None:
    none = {"types": ["m5.large"], "zone": f"{REGION}a", "market": None}
    line = f"no capacity for m5.large in {REGION}a (Spot and On-Demand)"
    assert given["capacity"]({"none": none}) == {"shortages": [line]}
    assert given["capacity"]({"none": none}) == {"shortages": [line]}
    assert given["capacity"]({"none": {"types": ["*"], "market": "spot"}}) == {
        "shortages": [line, "no capacity for every instance type in every zone (Spot)"]
    }
    assert len(given["capacity"]({})["shortages"]) == 2
    assert given["capacity"]({"restore": True}) == {"shortages": []}


def test_a_shortage_that_cannot_be_is_refused(given: dict[str, Command]) -> None:
    for none, text in (
        ({"types": []}, "at least one instance type"),
        ({"types": ["m5.huge"]}, "m5.huge"),
        ({"types": ["m5.large"], "zone": "eu-west-1a"}, f"the zones are {REGION}a"),
    ):
        with pytest.raises(CloudError, match=text):
            given["capacity"]({"none": none})
