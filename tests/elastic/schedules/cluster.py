"""An etcd of three members that can be killed, frozen and restarted with their data.

with Cluster(binary, folder) as cluster:
    cluster.kill(cluster.leader()); cluster.start(0)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from tests.elastic.workers import ETCD_FLAGS, free_port
from tidewater.elastic.launch.lifeline import bound_to

_SECONDS = 60.0


class Cluster:
    """Three members on loopback; a context manager."""

    def __init__(self, binary: Path, folder: Path, members: int = 3) -> None:
        self._binary, self._folder = binary, folder
        self.numbers = range(members)
        self._clients = [f"http://127.0.0.1:{free_port()}" for _ in self.numbers]
        self._peers = [f"http://127.0.0.1:{free_port()}" for _ in self.numbers]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def endpoints(self) -> str:
        """Return the endpoints as a value of ``--etcd``."""
        return ",".join(self._clients)

    def __enter__(self) -> Self:
        for number in self.numbers:
            self.start(number)
        self.wait_for(self.numbers)
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._processes):
            self.kill(number)

    def start(self, number: int) -> None:
        """Start a member with its existing data."""
        client, peer = self._clients[number], self._peers[number]
        every = ",".join(f"m{each}={self._peers[each]}" for each in self.numbers)
        arguments = [
            *("--name", f"m{number}", "--data-dir", str(self._folder / f"m{number}"), *ETCD_FLAGS),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", every),
        ]
        with (self._folder / f"m{number}.log").open("a") as log:
            self._processes[number] = subprocess.Popen(
                [str(self._binary), *arguments], stdout=log, stderr=log, preexec_fn=bound_to(os.getpid())
            )

    def kill(self, *numbers: int) -> None:
        """Kill members with SIGKILL."""
        for number in numbers:
            self._processes[number].kill()
        for number in numbers:
            self._processes.pop(number).wait()

    def freeze(self, *numbers: int) -> None:
        for number in numbers:
            self._processes[number].send_signal(signal.SIGSTOP)

    def thaw(self, *numbers: int) -> None:
        for number in numbers:
            self._processes[number].send_signal(signal.SIGCONT)

    def leader(self) -> int:
        """Return the number of the leader."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            for number in self._processes:
                status = self._status(number)
                if status and status["leader"] == status["header"]["member_id"]:
                    return number
            time.sleep(0.1)
        raise AssertionError("etcd has no leader")

    def wait_for(self, numbers: Iterable[int]) -> None:
        """Wait until these members have a leader."""
        deadline = time.monotonic() + _SECONDS
        for number in numbers:
            while not (self._status(number) or {}).get("leader"):
                if time.monotonic() > deadline:
                    raise AssertionError(f"etcd's member {number} does not come up in {_SECONDS:g} s")
                time.sleep(0.1)

    def _status(self, number: int) -> dict[str, Any] | None:
        request = urllib.request.Request(f"{self._clients[number]}/v3/maintenance/status", b"{}", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return dict(json.loads(answer.read()))
        except (urllib.error.URLError, OSError):
            return None
