"""Parameter servers of a test: real gRPC servers in this process, or processes of their own."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

import grpc
from elasticdl.job import JobArgs
from elasticdl.ps.__main__ import beginning
from elasticdl.ps.client import PsClient
from elasticdl.ps.model.policy import Policy
from elasticdl.ps.service import Identity, ParameterServer, serve


def quiet(text: str) -> None:
    """Take a message without showing it."""


@contextmanager
def servers(
    count: int, policy: Policy | None = None, args: JobArgs | None = None, *, port: int = 0
) -> Iterator[list[str]]:
    """Run servers in this process, which begin as those of the job do; yield their addresses."""
    with ExitStack() as stack:
        addresses = []
        for index in range(count):
            restored, init_from = beginning(args, (index, count), quiet) if args else (None, None)
            service = ParameterServer(
                Identity(index, count), policy or Policy(), restored=restored, init_from=init_from, say=quiet
            )
            server, bound = serve(service, f"127.0.0.1:{port}")
            stack.callback(stop, server)
            addresses.append(f"127.0.0.1:{bound}")
        yield addresses


def stop(server: grpc.Server) -> None:
    """Stop a server at once."""
    server.stop(0).wait()


def client(addresses: Sequence[str], worker: str = "worker-0") -> PsClient:
    """Return a client that says nothing."""
    return PsClient(addresses, worker=worker, patience_seconds=60, say=quiet)


class Process:
    """A server in a process of its own."""

    def __init__(self, index: int, count: int, args: JobArgs, *, port: int = 0, master: str = "") -> None:
        command = [sys.executable, "-m", "elasticdl.ps", "--job", args.job_name, "--index", str(index)]
        command += ["--servers", str(count), "--host", "127.0.0.1", "--port", str(port), "--job_args", args.to_json()]
        self._process = subprocess.Popen(
            [*command, "--master_addr", master], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.beginning = self.line_with("listens on port")
        self.port = int(self.beginning.split("listens on port ")[1].split(";")[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def line_with(self, text: str) -> str:
        """Return the next line of the log that contains a text; raise AssertionError if the log ends before."""
        seen = []
        while line := self._lines.get(timeout=120):
            if text in line:
                return line
            seen.append(line)
        raise AssertionError(f"no line with {text!r}: {''.join(seen)}")

    def end(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        self._process.send_signal(number)
        code = self._process.wait(60)
        self._reader.join(60)
        return code

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")
        self._process.stdout.close()
