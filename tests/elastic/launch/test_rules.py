"""When a process is started again, left out, or ends its worker, and the worker's exit code."""

from __future__ import annotations

import signal

import pytest

from tidewater.contract import exit_codes
from tidewater.elastic.launch import rules
from tidewater.elastic.launch.rules import Row, Then, Verdict

CRASHED = 139
LONG = rules.QUICK_SECONDS + 1
DEVICE, UNCONNECTED = exit_codes.OF_THE_MACHINE
SHORT_OF_STEADY = rules.STEADY_SECONDS - 1


def test_another_attempt_with_fewer_samples_is_at_once_and_no_failure_in_a_row() -> None:
    again = Verdict(Then.RESTART, Row(2))
    assert rules.decide(exit_codes.FAILED, ran_seconds=1, row=Row(2), leaving=False, learned=True) == again
    for code, leaving, then in ((exit_codes.USAGE, False, Then.GIVE_UP), (exit_codes.FAILED, True, Then.REST)):
        assert rules.decide(code, ran_seconds=1, row=Row(2), leaving=leaving, learned=True).then is then


@pytest.mark.parametrize(
    ("code", "ran", "row", "leaving", "verdict"),
    [
        pytest.param(exit_codes.FINISHED, LONG, Row(), False, Verdict(Then.REST), id="finished"),
        pytest.param(exit_codes.USAGE, 1, Row(), False, Verdict(Then.GIVE_UP), id="wrong-command-line"),
        pytest.param(exit_codes.FAILED, LONG, Row(), False, Verdict(Then.RESTART, Row(), 1), id="failed"),
        pytest.param(
            exit_codes.KILLED, LONG, Row(2), False, Verdict(Then.RESTART, Row(), 1), id="a-long-run-forgives-the-past"
        ),
        pytest.param(
            exit_codes.LEFT, LONG, Row(), False, Verdict(Then.RESTART, Row(), 1), id="left-without-being-asked"
        ),
        pytest.param(CRASHED, 1, Row(), False, Verdict(Then.RESTART, Row(1), 2), id="first-quick-failure"),
        pytest.param(CRASHED, 1, Row(1), False, Verdict(Then.RESTART, Row(2), 4), id="second-waits-longer"),
        pytest.param(CRASHED, 1, Row(2), False, Verdict(Then.GIVE_UP, Row(3)), id="third-is-enough"),
        pytest.param(CRASHED, 1, Row(2), True, Verdict(Then.REST), id="failed-while-leaving"),
        pytest.param(exit_codes.LEFT, 1, Row(), True, Verdict(Then.REST), id="left"),
        pytest.param(exit_codes.USAGE, 1, Row(), True, Verdict(Then.REST), id="wrong-command-line-while-leaving"),
        pytest.param(DEVICE, 1, Row(2, 0), False, Verdict(Then.RESTART, Row(2, 1), 2), id="a-new-process-may-succeed"),
        pytest.param(
            DEVICE, SHORT_OF_STEADY, Row(0, 1), False, Verdict(Then.RESTART, Row(0, 2), 4), id="it-fails-again-later"
        ),
        pytest.param(
            DEVICE, SHORT_OF_STEADY, Row(0, 2), False, Verdict(Then.LEAVE_OUT, Row(0, 3)), id="its-gpu-is-defective"
        ),
        pytest.param(
            UNCONNECTED, 1, Row(0, 2), False, Verdict(Then.LEAVE_OUT, Row(0, 3)), id="its-connections-are-defective"
        ),
        pytest.param(
            DEVICE, rules.STEADY_SECONDS, Row(0, 2), False, Verdict(Then.RESTART, Row(0, 1), 2), id="a-rare-failure"
        ),
        pytest.param(CRASHED, 1, Row(0, 2), False, Verdict(Then.RESTART, Row(1, 2), 2), id="other-failures-between"),
        pytest.param(DEVICE, 1, Row(0, 2), True, Verdict(Then.REST), id="its-gpu-fails-while-leaving"),
    ],
)
def test_the_launchers_reaction_to_the_end_of_a_process(
    code: int, ran: float, row: Row, leaving: bool, verdict: Verdict
) -> None:
    assert rules.decide(code, ran_seconds=ran, row=row, leaving=leaving) == verdict


@pytest.mark.parametrize(
    ("left_out", "processes", "code"),
    [
        pytest.param([DEVICE], 8, None, id="one-of-eight"),
        pytest.param([DEVICE] * 4, 8, None, id="half"),
        pytest.param([DEVICE] * 5, 8, DEVICE, id="more-than-half"),
        pytest.param([DEVICE], 2, None, id="one-of-two"),
        pytest.param([DEVICE, UNCONNECTED], 2, DEVICE, id="all-a-gpu-among-them"),
        pytest.param([UNCONNECTED, UNCONNECTED, DEVICE], 4, UNCONNECTED, id="mostly-connections"),
    ],
)
def test_a_worker_ends_when_fewer_than_half_of_its_processes_are_left(
    left_out: list[int], processes: int, code: int | None
) -> None:
    assert rules.too_few_left(left_out, processes) == code


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ([0, 0], exit_codes.FINISHED),
        ([143, 143], exit_codes.LEFT),
        ([0, 143], exit_codes.LEFT),
        ([0, 1, 143], exit_codes.FAILED),
        ([139, 2], exit_codes.USAGE),
        ([143, 137], exit_codes.KILLED),
    ],
)
def test_the_workers_exit_code_is_that_of_its_processes(codes: list[int], outcome: int) -> None:
    assert rules.outcome(codes) == outcome


def test_signals_are_reported_as_a_shell_does() -> None:
    assert rules.as_a_shell_does(-signal.SIGKILL) == exit_codes.KILLED
    assert rules.as_a_shell_does(-signal.SIGTERM) == exit_codes.LEFT
    assert rules.as_a_shell_does(3) == 3
