"""A worker of several processes runs examples of adapters: each process trains, and all leave together."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.elastic.workers import CHECKOUT, Worker
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

EXAMPLES = {
    "accelerate": ("train.py", "--num_epochs", "100"),
    "lightning": ("spirals.py",),
}
SLOW = ("--min-step-seconds", "1")
"""The shorter of the two examples has 160 steps: it isn't over before the second process is there."""


@pytest.mark.parametrize("library", EXAMPLES)
def test_each_process_of_a_worker_runs_the_script_and_all_leave(
    start: Callable[..., Worker], library: str, tmp_path: Path
) -> None:
    script, *arguments = EXAMPLES[library]
    path = CHECKOUT / "packages" / library / "examples" / script
    elsewhere = tmp_path / "elsewhere.py"  # loggers write into the working directory
    run = f"runpy.run_path({str(path)!r}, None, '__main__')"
    elsewhere.write_text(f"import os, runpy\nos.chdir({str(tmp_path)!r})\n{run}\n")
    pod = start("pod", "--processes", "2", *SLOW, *arguments, python=(str(elsewhere),), forked=False)
    pod.wait_for_world(2)
    pod.signal(signal.SIGTERM)
    assert pod.wait() == exit_codes.LEFT, pod.text()
    assert {line["worker"] for line in pod.events("left")} == {"pod/0", "pod/1"}
