"""The default training script on one machine: a worker is lost, another takes its place, all leave with the state."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import toolchain
from tests.processes import is_alive
from tests.suite.digits import digits

__all__ = ["digits"]

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.e2e
def test_the_others_go_on_a_new_one_joins_and_ctrl_c_saves_the_state(digits: Path, tmp_path: Path) -> None:
    script = [str(ROOT / "trainer" / "train.py"), "--data", str(digits), "--report-every", "1"]
    path = f"{toolchain.binary('etcd').parent}{os.pathsep}{os.environ['PATH']}"
    command = subprocess.Popen(
        [sys.executable, "-m", "tidewater.cli", "run", *script, "--epochs", "1000", "--min-step-seconds", "0.05"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert command.stdout is not None
    shown: list[str] = []

    def see(pattern: str) -> re.Match[str]:
        """Read on until a line matches."""
        assert command.stdout is not None
        for line in command.stdout:
            shown.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError("".join(shown))

    with contextlib.ExitStack() as stack:
        stack.callback(command.communicate)
        stack.callback(command.kill)
        pid = see(r"worker-1 has started: pid (\d+)")[1]
        see(r"worker-0 \| step=.* world_size=2 ")
        os.kill(int(pid), signal.SIGKILL)
        see(r"worker-0 \| step=.* world_size=1 ")
        other = see(r"worker-1 has started: pid (\d+)")[1]
        see(r"worker-1 \| step=.* world_size=2 ")
        command.send_signal(signal.SIGINT)
        see("all workers have left; to continue: tidewater run ")
        assert command.wait(60) == 143
    assert not is_alive(int(other))
    assert any((tmp_path / "tidewater-runs" / "train" / "checkpoints").rglob("*"))
