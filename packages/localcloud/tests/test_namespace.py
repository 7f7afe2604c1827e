"""What runs in the daemon's PID namespace ends with it, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.localcloud.tests.processes import is_alive

SOURCES = Path(__file__).parents[1] / "src"
# What a daemon does: it starts processes in sessions of their own, and one outlives its parent.
DAEMON = """
import os, signal, subprocess, sys, time
from localcloud import namespace
outside = os.getpid()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
namespace.enter()
subprocess.Popen(["sleep", "600"], start_new_session=True)
subprocess.run(["sh", "-c", "sleep 601 & :"], start_new_session=True)
print(outside, os.getpid(), os.readlink("/proc/self"), flush=True)
time.sleep(600)
"""
NETWORKS = """
import os, signal, subprocess, sys, time
from localcloud import namespace
read, write = os.pipe()
daemon = os.fork()
if not daemon:
    namespace.enter()
    subprocess.run(["ip", "netns", "add", "of-the-daemon"], check=True)
    os.write(write, b".")
    time.sleep(600)
os.read(read, 1)
seen = subprocess.run(["nsenter", "--net=/run/netns/of-the-daemon", "true"]).returncode
os.kill(daemon, signal.SIGKILL)
sys.exit(seen)
"""
DAEMON_SIGN = "namespace.enter"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a PID namespace"),
]


class Daemon:
    """A process that has entered a namespace, seen from outside."""

    def __init__(self) -> None:
        self.mark = f"MARK={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        environ = {**os.environ, name: value, "PYTHONPATH": str(SOURCES)}
        command = [sys.executable, "-c", DAEMON]
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().split()

    def processes(self) -> dict[int, str]:
        """Pids, as the host has them, and command lines of everything that descends from it."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark in (entry / "environ").read_bytes().decode(errors="replace").split("\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().replace("\0", " ").strip()
            except OSError:
                continue
        return {pid: command for pid, command in found.items() if is_alive(pid)}

    def wait_for(self, *commands: str) -> dict[int, str]:
        """Wait until exactly these programs run, those of the daemon itself left out, and return all processes."""
        deadline = time.monotonic() + 60
        while True:
            found = self.processes()
            if sorted(command for command in found.values() if DAEMON_SIGN not in command) == [*commands]:
                return found
            assert time.monotonic() < deadline, f"instead of {commands}: {found}"
            time.sleep(0.02)

    def wait_until_nothing_runs(self) -> None:
        deadline = time.monotonic() + 60
        while left := self.processes():
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.02)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    for pid in daemon.processes():
        with contextlib.suppress(ProcessLookupError):  # the first ones take the others with them
            os.kill(pid, signal.SIGKILL)
    daemon.process.wait()


def test_a_daemon_sees_its_own_processes_only(daemon: Daemon) -> None:
    outside, own, proc = daemon.said
    assert int(outside) == daemon.process.pid
    assert own == proc == "2"


@pytest.mark.parametrize("which", [0, 1, 2], ids=["the process outside", "process 1", "the daemon itself"])
def test_whichever_process_of_the_daemon_is_killed_everything_ends(daemon: Daemon, which: int) -> None:
    running = daemon.wait_for("sleep 600", "sleep 601")
    os.kill(sorted(pid for pid, command in running.items() if DAEMON_SIGN in command)[which], signal.SIGKILL)
    daemon.wait_until_nothing_runs()


def test_the_signal_to_end_reaches_the_daemon_and_its_status_comes_back(daemon: Daemon) -> None:
    daemon.process.terminate()
    assert daemon.process.wait(60) == 7
    daemon.wait_until_nothing_runs()


def test_the_host_can_enter_the_daemons_network_namespaces_also_where_its_mounts_are_private() -> None:
    private = ["unshare", "--mount", "--propagation", "private"]
    tmpfs = ["sh", "-c", 'mount -t tmpfs none /run; exec "$@"', "sh"]
    environ = {**os.environ, "PYTHONPATH": str(SOURCES)}
    subprocess.run([*private, *tmpfs, sys.executable, "-c", NETWORKS], env=environ, check=True, timeout=60)
