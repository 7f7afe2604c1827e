"""The command with a tiny script: lines with prefixes, lost workers that are replaced, Ctrl-C, failures."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import eventually, is_alive
from tidewater.cli.run import workers
from tidewater.cli.run.etcd import Etcd
from tidewater.cli.run.output import Output
from tidewater.cli.run.workers import Crew, Orders
from tidewater.contract import exit_codes

ROOT = Path(__file__).resolve().parents[3]
PATIENT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("trains as", os.environ["TIDEWATER_WORKER"])
while True:  # not one long sleep: a signal just before it would be handled after it
    time.sleep(0.1)
"""
TRAINS = """
import os
from tidewater.elastic.observe.log import Log
rank = int(os.environ["TIDEWATER_WORKER"][-1])
log = Log(f"worker-{rank}")
log.event("prepared", steps=3)
for step in (1, 2, 3):
    log.progress(step=step, epoch=1, world_size=2, generation=1, loss=0.5, samples_per_s=850, rank=rank)
print("the script's own line")
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("stays")
time.sleep(60)
"""


class Terminal:
    """A command on a terminal, and what it shows."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.master = master
        self.shown = ""

    def read(self) -> bool:
        """Return whether there may be more."""
        with contextlib.suppress(OSError):  # EIO: the command has ended
            found = os.read(self.master, 65536)
            self.shown += found.decode(errors="replace")  # a character may not be whole yet
            return bool(found)
        return False

    def pids(self, worker: str) -> list[int]:
        return [int(pid) for pid in re.findall(rf"{worker} has started: pid (\d+)", self.shown)]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert self.read(), self.shown


@pytest.fixture
def etcd() -> Iterator[str]:
    """An address that accepts connections: the tiny script uses no etcd."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def start(etcd: str, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Start the command with two workers on a terminal of its own."""
    started: list[Terminal] = []

    def start_command(script: str, *flags: str) -> Terminal:
        (tmp_path / "my script.py").write_text(script)
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "tidewater.cli", "run", "--etcd", etcd, *flags, "my script.py"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # its controlling terminal
        )
        os.close(slave)
        started.append(Terminal(process, master))
        return started[-1]

    yield start_command
    for each in started:
        each.process.kill()
        each.process.wait()
        os.close(each.master)


def test_lost_workers_are_replaced_and_ctrl_c_lets_all_leave(start: Callable[..., Terminal]) -> None:
    command = start(PATIENT, "--replace-after", "0.1")
    command.wait_for(lambda: command.shown.count("trains as") == 2)
    assert "\x1b[36mworker-0 |\x1b[0m trains as worker-0" in command.shown
    assert "\x1b[33mworker-1 |\x1b[0m trains as worker-1" in command.shown
    os.write(command.master, b"1")
    command.wait_for(lambda: command.shown.count("trains as worker-1") == 2)
    os.kill(command.pids("worker-0")[0], signal.SIGKILL)
    command.wait_for(lambda: command.shown.count("trains as worker-0") == 2)
    assert "worker-0 was killed; another worker-0 starts in 0.1 s" in command.shown
    assert is_alive(command.pids("worker-1")[1])
    os.write(command.master, b"\x03")
    command.wait_for(lambda: "to continue: tidewater run" in command.shown)
    assert "waiting up to 60 s for worker-0, worker-1 to finish the step" in command.shown
    assert "--replace-after 0.1 'my script.py'" in command.shown
    assert command.process.wait(60) == exit_codes.LEFT
    assert not any(is_alive(pid) for pid in command.pids("worker-[01]"))


def crew(tmp_path: Path, script: str, *, workers: int = 2) -> Crew:
    (tmp_path / "script.py").write_text(script)
    environment = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}
    orders = Orders([sys.executable, str(tmp_path / "script.py")], environment, workers, 0.05, metrics_port=9000)
    return Crew(orders, Etcd("http://127.0.0.1:1"), Output(workers))


def test_a_terminal_has_one_bar_for_all_workers_below_their_other_lines(start: Callable[..., Terminal]) -> None:
    command = start(TRAINS)
    command.wait_for(lambda: "the job has finished" in command.shown)
    assert command.process.wait(60) == exit_codes.FINISHED
    seen = [line.rpartition("\r\x1b[K")[2] for line in command.shown.split("\r\n")]
    assert sum("the script's own line" in line for line in seen) == 2
    assert not any("step=" in line for line in seen)
    assert [" 3/3 [" in line for line in seen].count(True) == 1
    assert seen[-3].startswith("epoch 1: 100%|")


def test_lines_are_as_they_were_without_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    orders = Orders([sys.executable, "-c", TRAINS], {"PYTHONPATH": str(ROOT)}, 2, 0.05)
    assert Crew(orders, Etcd("http://127.0.0.1:1"), Output(2)).run() == exit_codes.FINISHED
    out, _ = capfd.readouterr()
    assert out.count("worker-0 | step=") == out.count("worker-1 | step=") == 3
    assert "\x1b" not in out


def test_there_are_no_keys_on_a_terminal_that_does_not_control_the_command(etcd: str, tmp_path: Path) -> None:
    """Under `setsid`, for example."""
    (tmp_path / "script.py").write_text("print('trains')")
    command = [sys.executable, "-m", "tidewater.cli", "run", "--etcd", etcd, "script.py"]
    master, slave = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=slave, capture_output=True, text=True, start_new_session=True
    )
    os.close(master)
    os.close(slave)
    assert done.returncode == exit_codes.FINISHED, done.stderr
    assert "a digit kills" not in done.stderr


def test_a_permanent_failure_ends_the_run_with_its_exit_code_and_last_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fails = "print('no data in', os.environ['TIDEWATER_METRICS_PORT'], end='')\n    sys.exit(2)\n"
    script = PATIENT.replace("while", f"if os.environ['TIDEWATER_WORKER'] == 'worker-1':\n    {fails}while")
    assert crew(tmp_path, script).run() == exit_codes.USAGE
    out, err = capfd.readouterr()
    assert "worker-1 | no data in 9001\n" in out
    assert "worker-1 failed, exit code 2, and so would another one; its last lines:\n" in err
    assert "-- no data in 9001\n" in err
    assert "worker-0 left" in err


def test_a_script_that_fails_at_each_start_is_not_started_for_ever(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert crew(tmp_path, "import nothing_of_this_name", workers=1).run() == exit_codes.FAILED
    err = capfd.readouterr().err
    assert (err.count("has started: pid"), err.count("-- ModuleNotFoundError: ")) == (3, 1)


def test_when_one_has_finished_the_job_a_lost_one_is_not_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "import os, signal, time\nif os.environ['TIDEWATER_WORKER'] == 'worker-1':\n    time.sleep(1)\n"
    script += "    os.kill(os.getpid(), signal.SIGKILL)\n"
    assert crew(tmp_path, script).run() == exit_codes.FINISHED
    assert "worker-1 was killed\n" in capfd.readouterr().err


def test_a_worker_that_does_not_leave_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(workers, "GRACE_SECONDS", 0.1)
    script = STUBBORN + "\n"
    script = script.replace("time.sleep(60)", "os.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)")
    began = time.monotonic()
    assert crew(tmp_path, script, workers=1).run() == exit_codes.KILLED
    assert time.monotonic() - began < 30
    assert "killed, since 0.1 s have passed: worker-0" in capfd.readouterr().err


def test_the_processes_that_a_lost_worker_has_started_end_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "import os, subprocess, sys\nchild = subprocess.Popen(['sleep', '60'])\nprint('child', child.pid)\n"
    assert crew(tmp_path, script + "sys.exit(0)", workers=1).run() == exit_codes.FINISHED
    child = int(capfd.readouterr().out.split()[-1])
    eventually(lambda: not is_alive(child))


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    interrupts = "os.kill(os.getppid(), signal.SIGINT)\ntime.sleep(0.1)\n" * 2 + "time.sleep(60)"
    assert crew(tmp_path, STUBBORN.replace("time.sleep(60)", interrupts), workers=1).run() == exit_codes.KILLED
    assert capfd.readouterr().err.splitlines()[1:] == [
        "-- waiting up to 60 s for worker-0 to finish the step, save the state and leave; Ctrl-C again kills them",
        "-- worker-0 was killed",
    ]


@pytest.mark.parametrize("ignored", [signal.SIGHUP, signal.SIGINT])
def test_a_run_under_nohup_or_in_the_background_of_a_script_ignores_what_its_terminal_sends(
    tmp_path: Path, ignored: signal.Signals
) -> None:
    script = f"import os, time\nos.kill(os.getppid(), {ignored:d})\ntime.sleep(0.5)"
    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        code = crew(tmp_path, script, workers=1).run()
    finally:
        signal.signal(ignored, before)
    assert code == exit_codes.FINISHED


def test_workers_leave_when_their_lines_have_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert crew(tmp_path, PATIENT).run() == exit_codes.LEFT
