"""The command's own etcd: its folder and its process are gone when the command is, even after SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from scripts import toolchain
from tests.processes import eventually, is_alive
from tidewater.cli.errors import CliError
from tidewater.cli.run import etcd

ROOT = Path(__file__).resolve().parents[3]
HOLDS = """
import sys, time
from pathlib import Path
from tidewater.cli.run import etcd
with etcd.started(Path(sys.argv[1])) as found:
    print(found.process.pid, found.folder, flush=True)
    time.sleep(60)
"""


def test_its_folder_is_removed_at_the_end_and_variables_for_another_one_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ETCD_LISTEN_CLIENT_URLS", "http://127.0.0.1:1")
    with etcd.started(toolchain.binary("etcd")) as found:
        assert b"true" in urllib.request.urlopen(f"{found.url}/health", timeout=60).read()
        assert found.process is not None
        assert found.folder is not None
        assert found.folder.is_dir()
        assert found.end == ""
        found.process.kill()
        found.process.wait()
        assert found.end.startswith("etcd has ended with exit code -9; its last lines:\n")
    assert not found.folder.exists()


def test_nothing_stays_behind_when_the_command_is_killed() -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(toolchain.binary("etcd"))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    pid, folder = command.stdout.readline().split()
    assert Path(folder).is_dir()
    command.send_signal(signal.SIGKILL)
    command.communicate()
    eventually(lambda: not is_alive(int(pid)) and not Path(folder).exists())


def test_an_etcd_that_ends_at_once_is_a_sentence_with_its_last_lines(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho unknown flag: --data-dir\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(CliError, match="etcd has ended with exit code 3; its last lines:\nunknown flag"):
        etcd.started(program).__enter__()
