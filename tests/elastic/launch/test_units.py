"""The processes that divide a model start together, and the end of one is the end of all."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import eventually
from tidewater.contract import env, exit_codes, leaving
from tidewater.elastic.launch import units
from tidewater.elastic.launch.units import Child, Unit

PROGRAM = """
import os, sys, time
from pathlib import Path
rank = os.environ["TIDEWATER_LOCAL_RANK"]
here = Path(sys.argv[1])
for name, variable in (("limit", "LIMIT"), (f"{rank}.{time.monotonic_ns()}", "MEETING")):
    draft = here / f"draft-{rank}"
    draft.write_text(os.environ.get(f"TIDEWATER_LOCAL_{variable}", ""))
    draft.rename(here / name)  # whole, where the test looks for it
while not (here / f"end.{rank}").exists():
    time.sleep(0.01)
sys.exit(int((here / f"end.{rank}").read_text()))
"""


class Started:
    """A unit of two processes that end as the test asks."""

    def __init__(self, here: Path) -> None:
        self.here = here
        children = [Child(rank, {env.LOCAL_RANK: str(rank)}, None) for rank in range(2)]
        (here / "meetings").mkdir()
        self.unit = Unit(children, here / "meetings")

    def start(self) -> None:
        """Start it, and wait until both run."""
        before = [len(self.meetings(rank)) for rank in range(2)]
        self.unit.start([sys.executable, "-c", PROGRAM, str(self.here)], time.monotonic())
        eventually(lambda: [len(self.meetings(rank)) for rank in range(2)] == [each + 1 for each in before])

    def meetings(self, rank: int) -> list[str]:
        """Return where each process of that rank was to meet the other."""
        return [file.read_text() for file in sorted(self.here.glob(f"{rank}.*"))]

    def end(self, rank: int, code: int) -> None:
        draft = self.here / "draft"
        draft.write_text(str(code))
        draft.rename(self.here / f"end.{rank}")

    def code(self) -> int:
        """Return the code with which the unit ends."""
        found: list[int | None] = []

        def ended() -> bool:
            found.append(self.unit.look(time.monotonic()))
            return found[-1] is not None

        eventually(ended)
        assert found[-1] is not None
        return found[-1]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    started = Started(tmp_path)
    started.start()
    yield started
    started.unit.send(signal.SIGKILL)


def test_a_failure_of_one_process_ends_the_others_at_once_and_is_the_code_of_all(started: Started) -> None:
    started.end(1, 200)
    assert started.code() == 200
    assert (started.unit.first, started.unit.runs) == (1, False)


def test_a_killed_process_is_the_loss_of_all(started: Started) -> None:
    process = started.unit.children[1].process
    assert process
    process.kill()
    assert started.code() == 137
    assert not started.unit.runs


def test_an_error_is_not_the_code_of_all_where_another_process_says_more(started: Started) -> None:
    started.end(0, exit_codes.FAILED)  # it has lost the other one, which is about to end with a sentence
    eventually(lambda: started.unit.look(time.monotonic()) is None and started.unit.code == exit_codes.FAILED)
    assert started.unit.runs
    started.end(1, exit_codes.USAGE)
    assert started.code() == exit_codes.USAGE
    assert started.unit.first == 1


def test_after_an_error_the_others_are_killed_and_that_is_not_the_code_of_all(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "MOMENT_SECONDS", 0.1)
    started.end(1, exit_codes.FAILED)
    assert started.code() == exit_codes.FAILED
    assert (started.unit.first, started.unit.runs) == (1, False)


def test_after_a_planned_end_there_is_time_for_the_checkpoint_that_is_being_written() -> None:
    assert units.LAST_SECONDS >= leaving.FLUSH_SECONDS + leaving.MARGIN_SECONDS


def test_after_a_planned_end_the_others_have_time_to_end_by_themselves(started: Started) -> None:
    started.end(0, exit_codes.LEFT)
    eventually(lambda: started.unit.look(time.monotonic()) is None and started.unit.code == exit_codes.LEFT)
    assert started.unit.runs
    started.end(1, exit_codes.LEFT)
    assert started.code() == exit_codes.LEFT


def test_a_process_that_does_not_follow_one_that_leaves_is_killed(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "LAST_SECONDS", 0.1)
    started.end(0, exit_codes.LEFT)
    assert started.code() == exit_codes.LEFT
    assert not started.unit.runs


@pytest.mark.parametrize("code", [exit_codes.FAILED, 3])
def test_when_the_job_has_finished_a_process_may_work_on_and_its_failure_counts(started: Started, code: int) -> None:
    started.end(0, exit_codes.FINISHED)
    eventually(lambda: started.unit.look(time.monotonic()) is None and started.unit.code == exit_codes.FINISHED)
    assert started.unit.look(time.monotonic() + 1000) is None
    assert started.unit.runs
    started.end(1, code)
    assert started.code() == code
    assert started.unit.first == 1


def test_a_unit_that_has_ended_is_to_be_killed_at_no_time(started: Started) -> None:
    started.end(0, exit_codes.LEFT)
    started.end(1, exit_codes.LEFT)
    started.code()
    assert started.unit.kill_at is None


def test_each_start_has_a_place_to_meet_that_no_start_had_before(started: Started) -> None:
    started.end(0, 200)
    started.code()
    (started.here / "end.0").unlink()
    started.start()
    first, second = started.meetings(0)
    assert started.meetings(1) == [first, second]
    assert first != second


def test_a_unit_has_learned_what_one_of_its_processes_has_noted_since_its_start(started: Started) -> None:
    limit = Path((started.here / "limit").read_text())
    found = [started.unit.learned]
    limit.write_text("4")
    found.append(started.unit.learned)
    started.end(0, 200)
    started.code()
    (started.here / "end.0").unlink()
    started.start()
    assert (started.here / "limit").read_text() == str(limit)
    found.append(started.unit.learned)
    limit.write_text("2")
    found.append(started.unit.learned)
    assert found == [False, True, False, True]
