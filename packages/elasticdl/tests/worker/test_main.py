"""The command line of a worker: what it refuses, and how many threads it takes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import elasticdl
import pytest
from elasticdl.job import JobArgs, Strategy
from elasticdl.worker.main import main, threads

from tidewater.contract import exit_codes

ARGS = JobArgs(
    job_name="mnist",
    model_zoo=str(Path(elasticdl.__file__).parent / "zoo" / "templates"),
    model_def="mnist.mnist_functional_api.custom_model",
    training_data="/data/train",
    relaunch_timeout_worker=0.1,
)


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Put the log back as pytest has it: a program sends it to stdout."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def command(args: JobArgs, servers: str) -> list[str]:
    return ["--job", "mnist", "--master_addr", "127.0.0.1:1", "--ps_addrs", servers, "--job_args", args.to_json()]


@pytest.mark.parametrize(
    ("changes", "servers", "said"),
    [
        pytest.param({}, "", ["--ps_addrs is empty", "--distribution_strategy=Local"], id="no-servers"),
        pytest.param({}, "a:1,b:1", ["--ps_addrs has 2 addresses, and --num_ps_pods is 1"], id="too-many-servers"),
        pytest.param(
            {"distribution_strategy": Strategy.LOCAL}, "a:1", ["--distribution_strategy is Local"], id="strategy"
        ),
        pytest.param({"loss": "los"}, "a:1", ["--loss"], id="missing-function"),
    ],
)
def test_wrong_input_is_named(
    capsys: pytest.CaptureFixture[str], changes: dict[str, Any], servers: str, said: list[str]
) -> None:
    assert main(command(replace(ARGS, **changes), servers)) == exit_codes.USAGE
    shown = capsys.readouterr().out
    assert all(text in shown for text in said)


def test_a_server_that_stays_away_is_a_failure_that_names_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.worker", *command(ARGS, "127.0.0.1:1")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == exit_codes.FAILED, done.stderr
    assert "parameter server 0 has not answered" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("50000 100000", 1),
        ("150000 100000", 2),
        ("100000000 100000", len(os.sched_getaffinity(0))),
        ("max 100000", None),
    ],
)
def test_threads_are_as_many_as_the_container_has_cpus(tmp_path: Path, limit: str, expected: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(f"{limit}\n")
    cores = len(os.sched_getaffinity(0))
    assert threads({}, file) == min(cores, expected or cores)


def test_threads_are_those_of_the_environment_if_it_says_so(tmp_path: Path) -> None:
    assert threads({"OMP_NUM_THREADS": "3"}, tmp_path / "none") == 3
