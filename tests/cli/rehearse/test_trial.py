"""A wait ends when what is waited for can't happen any more, and says why."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tidewater.cli.rehearse.trial import Fallen, Setup, Stuck, Trial
from tidewater.contract import env
from tidewater.contract.rehearsal import Final, encoded


class Farm:
    """Processes that end when a test says so, with an exit code as ``Popen`` returns it."""

    def __init__(self) -> None:
        self.forked: list[Any] = []
        self.codes: dict[str, int] = {}

    def fork(self, request: Any) -> int:
        self.forked.append(request)
        return 4711

    def code(self, request: str) -> int | None:
        return self.codes.get(request)

    def signal(self, request: str, number: signal.Signals) -> None:
        self.codes[request] = -number


@pytest.fixture
def farm() -> Farm:
    return Farm()


@pytest.fixture
def trial(tmp_path: Path, farm: Any) -> Trial:
    setup = Setup(tmp_path, farm, ["train.py"], {"A": "b"}, samples=0, patience_seconds=0.05)
    made = Trial(setup, "faults", min_workers=1)
    made.start("worker-0")
    return made


def identity(tmp_path: Path) -> str:
    return f"{tmp_path.name}-faults/worker-0"


def test_workers_get_the_variables_of_their_run(trial: Trial, farm: Farm, tmp_path: Path) -> None:
    (request,) = farm.forked
    assert request["command"] == ["train.py", "--checkpoints", str(tmp_path / "faults" / "checkpoints")]
    assert {"A": "b", env.WORKER: "worker-0", env.MIN_WORKERS: "1"}.items() <= request["environment"].items()


def test_a_worker_that_ends_with_an_error_has_fallen_and_its_last_lines_are_shown(
    trial: Trial, farm: Farm, tmp_path: Path
) -> None:
    (tmp_path / "faults" / "worker-0.log").write_text("first\n\ntrainer: no data\n")
    farm.codes[identity(tmp_path)] = 2
    with pytest.raises(Fallen, match="worker-0 ended with exit code 2") as caught:
        trial.wait_for(lambda: False, "step 3")
    assert caught.value.lines == ["first", "trainer: no data"]


def test_a_worker_that_was_killed_has_not_fallen(trial: Trial) -> None:
    trial.send("worker-0", signal.SIGKILL)
    assert trial.wait_for(lambda: not trial.alive, "the end")
    assert trial.codes == {"worker-0": 137}


def test_when_all_have_ended_nothing_more_happens(trial: Trial, farm: Farm, tmp_path: Path) -> None:
    record = Final(7, 0, 1, 1, 0, 0.5, 4, {}, {})
    (tmp_path / "faults" / "worker-0.4711.records").write_bytes(encoded(record))
    farm.codes[identity(tmp_path)] = 0
    with pytest.raises(Stuck, match="step 9 did not happen: all workers have ended after step 7"):
        trial.wait_for(lambda: False, "step 9")


def test_a_run_in_which_nothing_happens_is_stuck(trial: Trial) -> None:
    assert not trial.wait_for(lambda: False, "step 3", seconds=0.01)
    with pytest.raises(Stuck, match=r"step 3 did not happen: for 0\.05 s no worker has recorded anything"):
        trial.wait_for(lambda: False, "step 3")
