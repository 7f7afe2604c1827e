"""Real etcd and real worker processes for the tests of the trainer."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from tests.processes import eventually
from tidewater.elastic.launch.lifeline import bound_to
from tidewater.elastic.observe.log import parse

CHECKOUT = Path(__file__).resolve().parents[2]
SECRET = b"by which the workers of a test authenticate"
ETCD_FLAGS = ("--unsafe-no-fsync",)
"""On a slow disk etcd waits for seconds, and elects another leader. SIGKILL loses nothing that it has written."""
PATIENCE_SECONDS = 180
"""Far beyond what anything here takes, even on a machine that is busy with other things."""

_STACKS_SECONDS = 2
"""After a SIGABRT a worker writes the stacks of its threads into its log."""

_given: set[int] = set()
"""The ports that this process was given: most of them are not in use yet when the next one is drawn."""


def free_port() -> int:
    """Return a TCP port that is free, another one each time, below those that the kernel gives to connections.

    One of theirs could be taken before it is used. Two processes of pytest-xdist never get the same port.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = 28_000 + secrets.randbelow(4_000 // processes) * processes + process
        if port in _given:
            continue
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _given.add(port)
            return port


def run_etcd(
    binary: Path, folder: Path, port: int, *, host: str = "127.0.0.1", flags: Sequence[str] = ()
) -> Iterator[str]:
    """Run one etcd member until the generator is closed; yield its URL. With `flags`, which are for TLS, don't wait."""
    url, peer = f"{'https' if flags else 'http'}://{host}:{port}", f"http://{host}:{free_port()}"
    arguments = [
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
        *flags,
    ]
    with (folder / "etcd.log").open("w") as log:
        process = subprocess.Popen(
            [binary, "--data-dir", folder / "etcd", *ETCD_FLAGS, *arguments],
            stdout=log,
            stderr=log,
            preexec_fn=bound_to(os.getpid()),
        )
    try:
        if not flags:
            eventually(lambda: urllib.request.urlopen(f"{url}/health", timeout=1).close() is None, OSError)
        yield url
    finally:
        process.kill()
        process.wait()


class Logged:
    """A worker's growing log, with methods that wait for its content."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self.started_at = time.monotonic()

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs, negative for a signal."""
        raise NotImplementedError

    def text(self) -> str:
        return self._path.read_text() if self._path.exists() else ""

    def lines(self) -> list[dict[str, str]]:
        return [parse(line) for line in self.text().splitlines()]

    def events(self, name: str) -> list[dict[str, str]]:
        # Most lines are not step reports, and parsing a line takes far longer than searching it.
        found = [parse(line) for line in self.text().splitlines() if f"event={name}" in line]
        return [line for line in found if line.get("event") == name]

    def steps(self) -> list[dict[str, str]]:
        return [line for line in self.lines() if "loss" in line]

    def wait_for(self, condition: Callable[[Self], object], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until ``condition`` holds; fail with the log if it does not in time, or if the worker has ended."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() > deadline or (self.poll() is not None and not condition(self)):
                raise AssertionError(self.account())
            time.sleep(0.02)

    def account(self) -> str:
        """Return what a failed test tells of this worker."""
        return _account(self, self.poll())

    def wait_for_world(self, size: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until ``size`` workers made the last step."""
        self.wait_for(lambda worker: worker.steps() and worker.steps()[-1]["world_size"] == str(size), seconds)


def _account(worker: Logged, code: int | None) -> str:
    return f"{worker.name}, exit code {code}, logged:\n{worker.text()[-4000:]}"


class Worker(Logged):
    """A worker process and its log."""

    others: Sequence[Worker] = ()
    """The workers that the same test has started, this one included: most often the one that waits isn't to blame."""

    def account(self) -> str:
        """Return what a failed test tells of this worker and of the others, with the stacks of those that run."""
        codes = {worker: worker.poll() for worker in (self, *self.others)}
        for worker in self.others:
            worker.signal(signal.SIGABRT)
        time.sleep(_STACKS_SECONDS)
        return "\n".join(_account(worker, code) for worker, code in codes.items())

    def signal(self, number: signal.Signals) -> None:
        raise NotImplementedError

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until the process ends; return its exit code."""
        raise NotImplementedError


class Program(Worker):
    """A worker that is started as a program; ``python`` holds the arguments of the Python interpreter."""

    def __init__(self, name: str, arguments: list[str], log_path: Path, python: tuple[str, ...]) -> None:
        super().__init__(name, log_path)
        with self._path.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, *python, "--worker", name, *arguments],
                cwd=CHECKOUT,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=bound_to(os.getpid()),
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "PYTHONHASHSEED": "0"},
            )

    def poll(self) -> int | None:
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        return self._process.wait(seconds)
