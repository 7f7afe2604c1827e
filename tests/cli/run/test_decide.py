"""A lost worker is replaced; one that a replacement would only repeat ends the run with its exit code."""

from __future__ import annotations

import pytest

from tidewater.cli.run.decide import MAX_QUICK_FAILURES, MAX_QUICK_LOSSES, Row, Then, Verdict, decide, outcome
from tidewater.contract.exit_codes import FAILED, FINISHED, KILLED, LEFT, USAGE
from tidewater.elastic.launch.rules import QUICK_SECONDS

INTERRUPTED, SEGMENTATION_FAULT = 130, 139
ALMOST = Row(failures=MAX_QUICK_FAILURES - 1, losses=MAX_QUICK_LOSSES - 1)


@pytest.mark.parametrize(
    ("code", "ran", "row", "ending", "verdict"),
    [
        pytest.param(FINISHED, 1, Row(), False, Verdict(Then.REST, Row()), id="finished"),
        pytest.param(KILLED, 1, Row(), False, Verdict(Then.REPLACE, Row(losses=1)), id="killed"),
        pytest.param(LEFT, 1, Row(losses=4), False, Verdict(Then.REPLACE, Row(losses=5)), id="left-by-itself"),
        pytest.param(FAILED, 1, Row(losses=4), False, Verdict(Then.REPLACE, Row(1, 4)), id="may-not-happen-again"),
        pytest.param(INTERRUPTED, 1, Row(), False, Verdict(Then.REPLACE, Row(1)), id="interrupted-alone"),
        pytest.param(FAILED, 1, ALMOST, False, Verdict(Then.GIVE_UP, Row(3, 19)), id="fails-at-each-start"),
        pytest.param(KILLED, 1, ALMOST, False, Verdict(Then.GIVE_UP, Row(2, 20)), id="no-memory-at-each-start"),
        pytest.param(FAILED, QUICK_SECONDS, ALMOST, False, Verdict(Then.REPLACE, Row()), id="a-long-run-begins-anew"),
        pytest.param(USAGE, QUICK_SECONDS, Row(), False, Verdict(Then.GIVE_UP, Row()), id="wrong-command-line"),
        pytest.param(SEGMENTATION_FAULT, 1, Row(), False, Verdict(Then.GIVE_UP, Row()), id="permanent"),
        pytest.param(KILLED, 1, ALMOST, True, Verdict(Then.REST, ALMOST), id="killed-while-ending"),
        pytest.param(USAGE, 1, Row(), True, Verdict(Then.REST, Row()), id="failed-while-ending"),
    ],
)
def test_what_happens_when_a_worker_has_ended(code: int, ran: float, row: Row, ending: bool, verdict: Verdict) -> None:
    assert decide(code, ran_seconds=ran, row=row, ending=ending) == verdict


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        pytest.param([FINISHED, FINISHED], FINISHED, id="finished"),
        pytest.param([FINISHED, KILLED, LEFT], FINISHED, id="one-was-lost-after-the-last-step"),
        pytest.param([FINISHED, FAILED], FAILED, id="one-failed-at-the-end"),
        pytest.param([LEFT, LEFT], LEFT, id="left"),
        pytest.param([LEFT, FAILED], FAILED, id="the-last-one-could-not-save"),
        pytest.param([LEFT, KILLED], KILLED, id="one-did-not-leave-in-time"),
    ],
)
def test_the_exit_code_is_that_of_the_workers(codes: list[int], code: int) -> None:
    assert outcome(codes) == code
