"""Real workers with a real etcd: workers join, leave and are killed, and training continues."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.elastic.workers import Worker
from tidewater.contract import exit_codes
from tidewater.elastic.launch.rules import as_a_shell_does

pytestmark = pytest.mark.e2e

Start = Callable[..., Worker]
LONG = ("--epochs", "2000", "--min-step-seconds", "0.05")
LEAVING_AT_ONCE = """
import os, signal
import tidewater
from trainer.train import flags, training
from tidewater.elastic.observe.log import Log

event = Log.event

def event_and_leave(log, name, **fields):
    event(log, name, **fields)
    if name == "started":
        os.kill(os.getpid(), signal.SIGTERM)

Log.event = event_and_leave
raise SystemExit(tidewater.run(training, flags=flags))
"""


def step_numbers(worker: Worker) -> list[int]:
    return [int(line["step"]) for line in worker.steps()]


def assert_each_step_once(worker: Worker) -> None:
    numbers = step_numbers(worker)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def two(start: Start, *arguments: str) -> tuple[Worker, Worker]:
    a = start("a", *(arguments or LONG))
    a.wait_for(lambda worker: worker.steps())
    b = start("b", *(arguments or LONG))
    b.wait_for_world(2)
    return a, b


def test_survivors_of_a_kill_continue_in_the_same_process_and_repeat_no_step(start: Start) -> None:
    a, b = two(start)
    b.signal(signal.SIGKILL)
    a.wait_for(lambda worker: worker.events("recovered"))
    assert a.events("recovered")[0]["world_size"] == "1"
    assert [event["peer"] for event in a.events("peer_lost")] == ["b"]
    a.wait_for_world(1)
    assert_each_step_once(a)


def test_training_continues_when_the_oldest_worker_is_killed(start: Start) -> None:
    a, b = two(start)
    c = start("c", *LONG)
    c.wait_for_world(3)
    a.signal(signal.SIGKILL)
    for worker in (b, c):
        worker.wait_for(lambda worker: worker.events("recovered"))
        worker.wait_for_world(2)
        assert_each_step_once(worker)


def test_a_newcomer_gets_the_state_from_a_peer_and_no_worker_repeats_a_step(start: Start) -> None:
    a, b = two(start)
    c = start("c", *LONG)
    c.wait_for_world(3)
    synced = c.events("state_synced")[0]
    assert synced["from_rank"] == "0"
    assert step_numbers(c)[0] == int(synced["step"]) + 1
    for worker in (a, b):
        worker.wait_for_world(3)
        assert worker.events("step_discarded") == []
        assert_each_step_once(worker)


def test_a_worker_asked_to_leave_causes_no_failure_in_the_others(start: Start) -> None:
    a, b = two(start)
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT
    assert a.events("left")
    b.wait_for_world(1)
    assert b.events("step_discarded") == []
    assert b.events("peer_lost") == []
    assert_each_step_once(b)


def test_a_worker_asked_to_leave_as_soon_as_it_has_logged_its_start_leaves_gracefully(start: Start) -> None:
    worker = start("a", python=("-c", LEAVING_AT_ONCE))
    assert worker.wait() == exit_codes.LEFT
    assert worker.events("left")


def test_a_worker_asked_repeatedly_to_leave_leaves_gracefully(start: Start) -> None:
    a, b = two(start)
    while b.poll() is None:
        b.signal(signal.SIGTERM)  # some signals interrupt the handling of the previous one
    assert as_a_shell_does(b.wait()) == exit_codes.LEFT  # ended by the last signal if it arrives while Python exits
    assert b.events("left")
    a.wait_for_world(1)
    assert a.events("step_discarded") == []


def test_the_last_worker_to_leave_saves_a_checkpoint_from_which_the_job_continues(start: Start) -> None:
    a, b = two(start)
    for worker in (a, b):
        worker.signal(signal.SIGTERM)
    assert [worker.wait() for worker in (a, b)] == [exit_codes.LEFT, exit_codes.LEFT]
    reached = max(step_numbers(a)[-1], step_numbers(b)[-1])
    again = start("a", *LONG)
    again.wait_for(lambda worker: worker.steps())
    assert step_numbers(again)[0] == reached + 1


@pytest.mark.parametrize("often", [("--checkpoint-every", "10"), ("--checkpoint-minutes", "0.01")], ids=" ".join)
def test_a_job_whose_workers_were_all_killed_continues_from_its_last_checkpoint(
    start: Start, often: tuple[str, str]
) -> None:
    arguments = (*LONG, *often, "--lease-seconds", "3")
    a, b = two(start, *arguments)
    b.wait_for(lambda worker: step_numbers(worker)[-1] >= 25)
    a.wait_for(lambda worker: len(worker.events("checkpoint_saved")) > 1)
    b.signal(signal.SIGKILL)
    a.signal(signal.SIGKILL)
    saved = [int(event["step"]) for event in a.events("checkpoint_saved")]
    again = start("a", *arguments)
    again.wait_for(lambda worker: worker.steps())
    assert step_numbers(again)[0] > saved[-1] > saved[0]
    if "--checkpoint-every" in often:
        assert step_numbers(again)[0] % 10 == 1


def test_a_frozen_worker_is_left_out_because_it_answers_no_ping_and_rejoins_as_a_newcomer(start: Start) -> None:
    never = "100000"
    a, b = two(start, *LONG, "--group-timeout-seconds", never, "--lease-seconds", never)
    b.signal(signal.SIGSTOP)
    a.wait_for(lambda worker: worker.events("recovered"))
    assert a.events("peer_silent")[0]["peer"] == "b"
    a.wait_for_world(1)
    b.signal(signal.SIGCONT)
    a.wait_for_world(2)
    b.wait_for(lambda worker: worker.events("state_synced"))
    assert_each_step_once(a)


def test_below_the_minimum_workers_wait_and_report_it(start: Start) -> None:
    a = start("a", *LONG, "--min-workers", "2")
    a.wait_for(lambda worker: worker.events("waiting"))
    assert a.events("waiting")[0]["reason"] == "below_min"
    b = start("b", *LONG, "--min-workers", "2")
    for worker in (a, b):
        worker.wait_for_world(2)
        assert step_numbers(worker)[0] == 1
    b.signal(signal.SIGKILL)
    a.wait_for(lambda worker: len(worker.events("waiting")) == 2)
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT


def test_above_the_maximum_a_worker_waits_until_there_is_room(start: Start) -> None:
    arguments = (*LONG, "--max-workers", "1")
    a = start("a", *arguments)
    a.wait_for(lambda worker: worker.steps())
    b = start("b", *arguments)
    b.wait_for(lambda worker: worker.events("waiting"))
    assert b.events("waiting")[0]["reason"] == "in_line"
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT
    b.wait_for(lambda worker: worker.steps())
    assert step_numbers(b)[0] > step_numbers(a)[-1]


def test_a_short_run_reaches_97_percent_with_equal_states_and_stays_finished(start: Start) -> None:
    a, b = start("a"), start("b")
    assert [worker.wait() for worker in (a, b)] == [exit_codes.FINISHED, exit_codes.FINISHED]
    ends = [worker.events("finished")[0] for worker in (a, b)]
    assert float(ends[0]["accuracy"]) >= 0.97
    assert ends[0]["state"] == ends[1]["state"]
    late = start("late")
    assert late.wait() == exit_codes.FINISHED
    assert late.steps() == []
