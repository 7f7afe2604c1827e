"""One process per GPU: only a lost one is restarted, and the worker's exit code is that of its processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.elastic.launch.machines import LISTED, machine
from tests.elastic.workers import free_port
from tests.processes import eventually, is_alive
from tidewater.contract import env, exit_codes
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.launch import launcher, rules
from tidewater.elastic.launch.gpus import Gpu, Visible
from tidewater.elastic.observe.log import parse

ROOT = Path(__file__).resolve().parents[3]
REQUIRED = ["--job=digits", "--etcd=http://127.0.0.1:1", "--data=/data", "--checkpoints=/checkpoints"]

SCRIPT = """
import os, signal, subprocess, sys, time
from pathlib import Path
from tidewater.elastic.launch import launcher, rules
from tidewater.elastic.config import Config

{settings}
config = launcher.share(Config.parse({required!r} + ["--worker=pod"] + sys.argv[1:], os.environ))
if config.local_rank is None:
    sys.exit(launcher.launch(config, launcher.plan(config.processes, os.environ)))
rank, here = config.local_rank, Path({here!r})
starts = len(list(here.glob(f"started.{{rank}}.*")))
(here / f"started.{{rank}}.{{starts}}").write_text(str(os.getpid()))
sys.stdout.write(f"step=1 loss=1 worker={{config.worker}}\\n")  # at once, as the trainer's log does
sys.stdout.flush()

def until_told(code=143):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(code))
    (here / f"ready.{{rank}}.{{starts}}").touch()
    while True:
        time.sleep(0.05)

{body}
"""
"""A training script: the launcher's own command line is run again for each process, and there it does `body`."""

SECOND_FAILS = """
while rank == 1 and not (here / "ready.0.0").exists():
    time.sleep(0.02)
until_told() if rank == 0 else sys.exit({code})
"""
"""A body: not before the first has begun, or that would be stopped before it could leave a trace."""
MACHINE_FAILS = """
ranks = {ranks}
while rank in ranks and not (here / f"ready.{{len(ranks)}}.0").exists():
    time.sleep(0.02)
sys.exit(ranks[rank]) if rank in ranks else until_told()
"""
"""A body: the first processes end with the codes of `ranks`, once the process after them has begun."""


class Worker:
    """A launcher, its script, and the files that its processes write to a directory."""

    def __init__(self, here: Path, body: str, *arguments: str, processes: int = 2, quick_seconds: float = 60.0) -> None:
        self.here = here
        settings = f"rules.QUICK_SECONDS, rules.BACK_OFF_SECONDS = {quick_seconds}, 0.05"
        script = here / "train.py"
        script.write_text(SCRIPT.format(settings=settings, required=REQUIRED, here=str(here), body=body))
        self.command = [sys.executable, str(script), f"--processes={processes}", *arguments]
        self.environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}

    @contextmanager
    def running(self, *before: str) -> Iterator[subprocess.Popen[str]]:
        """Run the launcher as a process; kill it at the end if it still runs."""
        process = subprocess.Popen([*before, *self.command], env=self.environ, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the launcher until it ends."""
        return subprocess.run(self.command, env=self.environ, capture_output=True, text=True, timeout=60, check=False)

    def pid(self, rank: int, start: int = 0) -> int:
        """Return the process id of process `rank` after its `start`-th start, once it is ready for signals."""
        eventually(lambda: (self.here / f"ready.{rank}.{start}").exists())
        return int((self.here / f"started.{rank}.{start}").read_text())

    def starts(self, rank: int) -> int:
        """Return how often process `rank` was started."""
        return len(list(self.here.glob(f"started.{rank}.*")))


def events(output: str, name: str) -> list[dict[str, str]]:
    return [fields for fields in map(parse, output.splitlines()) if fields.get("event") == name]


def of_process(rank: int, *arguments: str) -> Config:
    config = Config.parse([*REQUIRED, "--worker=pod", *arguments], {env.LOCAL_RANK: str(rank), env.LOCAL_SIZE: "4"})
    return launcher.share(config)


def test_each_process_has_a_name_and_a_port_of_its_own_and_limits_count_processes() -> None:
    config = of_process(2, "--metrics-port=9464", "--min-workers=2", "--max-workers=3")
    assert (config.worker, config.metrics_port) == ("pod/2", 9466)
    # With a minimum of 4, a single worker could train alone.
    assert (config.least_members, config.most_members) == (5, 12)
    assert of_process(2, "--min-workers=1").least_members == 1
    assert of_process(2, "--metrics-port=0").metrics_port == 0


def test_a_process_without_a_launcher_keeps_its_settings() -> None:
    config = Config.parse([*REQUIRED, "--metrics-port=9464"], {})
    assert launcher.share(config) is config


def test_a_port_above_65535_is_refused() -> None:
    with pytest.raises(ConfigError, match="--metrics-port is 65534, which makes 65536 for process 2"):
        of_process(2, "--metrics-port=65534")


@pytest.mark.parametrize(
    ("visible", "processes"), [("", 1), ("0", 1), ("0,1,2,3", 4), ("GPU-a,GPU-b", 2), ("1,-1,2", 1)]
)
def test_auto_is_one_process_per_visible_gpu_and_at_least_one(visible: str, processes: int) -> None:
    planned = launcher.plan("auto", {"CUDA_VISIBLE_DEVICES": visible})
    assert planned.processes == processes
    assert planned.gpus.source == f"CUDA_VISIBLE_DEVICES={visible}"


def test_a_given_number_of_processes_is_used_and_they_share_the_gpus() -> None:
    planned = launcher.plan("3", {"CUDA_VISIBLE_DEVICES": "4,6"})
    assert planned == launcher.Plan(3, Visible((Gpu("4"), Gpu("6")), "CUDA_VISIBLE_DEVICES=4,6"))
    assert [planned.gpus.only(rank)["CUDA_VISIBLE_DEVICES"] for rank in range(3)] == ["4", "6", "4"]
    assert launcher.plan("1", {}).processes == 1


def test_the_worker_finishes_when_all_processes_finish_and_their_logs_are_passed_on(tmp_path: Path) -> None:
    done = Worker(tmp_path, "sys.exit(0)", processes=3).run()
    assert done.returncode == exit_codes.FINISHED, done.stderr
    told = [parse(line)["worker"] for line in done.stdout.splitlines() if line.startswith("step=")]
    assert sorted(told) == ["pod/0", "pod/1", "pod/2"]
    (launched,) = events(done.stdout, "launched")
    assert (launched["processes"], launched["said_by"]) == ("3", "CUDA_VISIBLE_DEVICES=")


def test_only_the_killed_process_is_restarted(tmp_path: Path) -> None:
    worker = Worker(tmp_path, "until_told()")
    with worker.running() as process:
        other, lost = worker.pid(0), worker.pid(1)
        os.kill(lost, signal.SIGKILL)
        again = worker.pid(1, start=1)
        assert again != lost
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == exit_codes.LEFT
    assert worker.starts(0) == 1
    assert not is_alive(other)
    (reported,) = events(output, "process_lost")
    assert (reported["process"], reported["code"], reported["worker"]) == ("1", str(exit_codes.KILLED), "pod")


def test_a_process_that_fails_repeatedly_ends_the_worker_with_its_exit_code(tmp_path: Path) -> None:
    worker = Worker(tmp_path, SECOND_FAILS.format(code=7))
    done = worker.run()
    assert done.returncode == 7
    assert (worker.starts(0), worker.starts(1)) == (1, rules.MAX_QUICK_FAILURES)
    (given_up,) = events(done.stdout, "process_given_up")
    assert (given_up["process"], given_up["failures"]) == ("1", "3")


def test_failures_after_long_runs_do_not_add_up(tmp_path: Path) -> None:
    worker = Worker(tmp_path, "sys.exit(7 if rank == 1 and starts < 5 else 0)", quick_seconds=0.0)
    assert worker.run().returncode == exit_codes.FINISHED
    assert worker.starts(1) == 6


@pytest.mark.parametrize("code", exit_codes.OF_THE_MACHINE)
def test_one_process_with_a_failed_gpu_is_left_out_and_the_others_go_on(tmp_path: Path, code: int) -> None:
    worker = Worker(tmp_path, MACHINE_FAILS.format(ranks={0: code}), processes=2)
    worker.environ = {**os.environ, **machine(tmp_path, LISTED)}
    port = free_port()
    worker.command.append(f"--metrics-port={port}")
    with worker.running() as process:
        other = worker.pid(1)
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if "event=process_left_out" in line:
                break
        eventually(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1), OSError)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            served = answer.read().decode()
        assert is_alive(other)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == exit_codes.LEFT
    assert (worker.starts(0), worker.starts(1)) == (rules.MAX_MACHINE_FAILURES, 1)
    assert len(events(text, "process_lost")) == rules.MAX_MACHINE_FAILURES - 1
    (left_out,) = events(text, "process_left_out")
    expected = {"process": "0", "code": str(code), "failures": "3", "left": "1", "of": "2"}
    named = {"gpu": "0", "uuid": "GPU-1", "bus_id": "00000000:10:1C.0"}
    assert expected | named == {name: left_out[name] for name in expected | named}
    assert f'tidewater_process_left_out{{code="{code}",gpu="GPU-1"}} 1.0' in served
    assert 'worker="pod/0"' in served


def test_the_worker_finishes_without_the_processes_that_were_left_out(tmp_path: Path) -> None:
    body = "sys.exit(200 if rank == 0 else 0) if rank == 0 or (here / 'started.0.2').exists() else None\n"
    worker = Worker(tmp_path, f"while True:\n    {body}    time.sleep(0.02)")
    done = worker.run()
    assert done.returncode == exit_codes.FINISHED, done.stdout
    assert len(events(done.stdout, "process_left_out")) == 1


def test_a_port_that_is_taken_only_costs_the_metrics_of_a_process_that_was_left_out(tmp_path: Path) -> None:
    body = "sys.exit(200 if rank == 0 else 0) if rank == 0 or (here / 'started.0.2').exists() else None\n"
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        worker = Worker(tmp_path, f"while True:\n    {body}    time.sleep(0.02)", f"--metrics-port={port}")
        done = worker.run()
    assert done.returncode == exit_codes.FINISHED, done.stdout
    (event,) = events(done.stdout, "metrics_not_served")
    assert (event["process"], event["reason"].startswith(f"--metrics-port {port} cannot be used")) == ("0", True)


def test_an_error_of_the_script_ends_a_worker_with_a_process_left_out_by_its_own_code(tmp_path: Path) -> None:
    body = "sys.exit(200 if rank == 0 else 7) if rank == 0 or (here / 'started.0.2').exists() else None\n"
    done = Worker(tmp_path, f"while True:\n    {body}    time.sleep(0.02)").run()
    assert done.returncode == 7, done.stdout


def test_a_worker_with_fewer_than_half_of_its_processes_stops_the_others_and_ends(tmp_path: Path) -> None:
    ranks = dict.fromkeys(range(2), exit_codes.DEVICE_FAILED)
    worker = Worker(tmp_path, MACHINE_FAILS.format(ranks=ranks), processes=3)
    done = worker.run()
    assert done.returncode == exit_codes.DEVICE_FAILED
    (given_up,) = events(done.stdout, "worker_given_up")
    assert given_up["reason"] == "1 of 3 processes are left, fewer than half"
    assert worker.starts(2) == 1


def test_a_worker_without_any_usable_gpu_ends_at_once(tmp_path: Path) -> None:
    worker = Worker(tmp_path, "sys.exit(200)")
    assert worker.run().returncode == exit_codes.DEVICE_FAILED
    assert worker.starts(0) == worker.starts(1) == rules.MAX_MACHINE_FAILURES


def test_a_wrong_command_line_ends_the_worker_at_once(tmp_path: Path) -> None:
    worker = Worker(tmp_path, SECOND_FAILS.format(code=2))
    assert worker.run().returncode == exit_codes.USAGE
    assert (worker.starts(0), worker.starts(1)) == (1, 1)


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["SIGTERM", "Ctrl-C", "a lost terminal"]
)
def test_on_a_stop_signal_all_processes_leave_gracefully(tmp_path: Path, how: signal.Signals) -> None:
    worker = Worker(tmp_path, "until_told()")
    with worker.running("env", "--default-signal") as process:  # nohup may run the tests
        children = [worker.pid(rank) for rank in range(2)]
        process.send_signal(how)
        assert process.wait(60) == exit_codes.LEFT
    assert not [pid for pid in children if is_alive(pid)]
    assert (worker.starts(0), worker.starts(1)) == (1, 1)


def test_on_a_stop_signal_pending_restarts_are_cancelled(tmp_path: Path) -> None:
    worker = Worker(tmp_path, SECOND_FAILS.format(code=7))
    script = tmp_path / "train.py"
    script.write_text(script.read_text().replace("= 60.0, 0.05", "= 60.0, 60.0"))
    with worker.running() as process:
        worker.pid(0)
        assert process.stdout is not None
        for line in process.stdout:
            if "event=process_lost" in line:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == exit_codes.LEFT
    assert worker.starts(1) == 1


def test_a_second_ctrl_c_kills_processes_that_do_not_leave(tmp_path: Path) -> None:
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    worker = Worker(tmp_path, f"{ignoring}\n(here / f'ready.{{rank}}.{{starts}}').touch()\ntime.sleep(600)")
    with worker.running() as process:
        children = [worker.pid(rank) for rank in range(2)]
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == exit_codes.KILLED
    assert not [pid for pid in children if is_alive(pid)]


def test_a_failure_during_shutdown_is_reported(tmp_path: Path) -> None:
    worker = Worker(tmp_path, "until_told(1 if rank == 1 else 143)")
    with worker.running() as process:
        for rank in range(2):
            worker.pid(rank)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == exit_codes.FAILED


def test_the_processes_die_with_the_launcher(tmp_path: Path) -> None:
    worker = Worker(tmp_path, "until_told()")
    with worker.running() as process:
        children = [worker.pid(rank) for rank in range(2)]
        process.kill()
        process.wait()
        eventually(lambda: not any(map(is_alive, children)))


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be process 1 of a PID namespace")
def test_as_process_1_the_launcher_reaps_orphaned_processes(tmp_path: Path) -> None:
    orphan = "subprocess.run(['sh', '-c', '(sleep 0.2; exit 3) &'])\nuntil_told()"
    worker = Worker(tmp_path, orphan)
    with worker.running("unshare", "--pid", "--fork", "--mount-proc", "--kill-child") as unshare:
        for rank in range(2):
            worker.pid(rank)
        (launched,) = children_of(unshare.pid)
        time.sleep(0.5)
        eventually(lambda: len(children_of(launched)) == 2)
        assert all(is_alive(child) for child in children_of(launched))
        os.kill(launched, signal.SIGTERM)
        assert unshare.wait(60) == exit_codes.LEFT


def children_of(pid: int) -> list[int]:
    """Return the process ids of the children, including zombies."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
