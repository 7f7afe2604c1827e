"""One turn: members of a new job in a new etcd join, are lost and are replaced."""

from __future__ import annotations

import contextlib
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness.records import Found
from benchmarks.membership.hosts import Hosts, processes
from benchmarks.membership.results import (
    CPU,
    FORM,
    GENERATIONS,
    JOINS,
    LOST,
    SECONDS,
    SENT,
    SYSTEM,
    TEN,
    UNITS,
    WRITES,
    load,
    named,
)
from scripts import toolchain
from tests.elastic.workers import free_port, run_etcd

MOST_LOST = 10
_SETTLED_SECONDS, _MOST_SETTLE_SECONDS = 0.5, 60.0
_COUNTERS = {
    WRITES: re.compile(r"^etcd_mvcc_(?:put|delete)_total (\S+)$", re.MULTILINE),
    SENT: re.compile(r"^etcd_network_client_grpc_sent_bytes_total (\S+)$", re.MULTILINE),
}
"""etcd's metrics: https://etcd.io/docs/v3.5/metrics/etcd-metrics-latest.txt"""


class _Job:
    """The members of a turn and their etcd."""

    def __init__(self, members: int, url: str, hosts: Hosts, patience_seconds: float) -> None:
        self._members, self._url, self._hosts, self._patience_seconds = members, url, hosts, patience_seconds
        self._number = 0
        """Of the current generation."""

    def changes(self) -> Iterator[Found]:
        """Make all changes; yield what each of them costs."""
        names = [f"m-{index}" for index in range(self._members)]
        self._hosts.prepare(names)
        yield from self._change(FORM, len(names), self._hosts.join)
        yield from self._change(LOST, len(names) - 1, lambda: self._hosts.lose([names[0]]))
        self._hosts.prepare(["new"])
        yield from self._change(JOINS, len(names), self._hosts.join)
        if len(names) > MOST_LOST:
            lost = names[1 : MOST_LOST + 1]
            yield from self._change(TEN, len(names) - MOST_LOST, lambda: self._hosts.lose(lost))

    def _change(self, change: str, size: int, do: Callable[[], None]) -> Iterator[Found]:
        """Yield the cost of a change that ends with a generation of `size`, with all that is written after it."""
        before, cpu, began = self._counters(), self._hosts.cpu(), time.monotonic()
        do()
        number, at = self._hosts.together(size, self._patience_seconds)
        after = self._settled()
        values = {
            SECONDS: at - began,
            GENERATIONS: number - self._number,
            WRITES: after[WRITES] - before[WRITES],
            SENT: (after[SENT] - before[SENT]) / 1e6,
            CPU: (self._hosts.cpu() - cpu) / size * 1e3,
        }
        self._number = number
        for measure, value in values.items():
            yield Found(named(self._members, change, measure), SYSTEM, (value,), UNITS[measure])

    def _counters(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=_MOST_SETTLE_SECONDS) as answer:
            text = answer.read().decode()
        return {name: sum(map(float, pattern.findall(text))) for name, pattern in _COUNTERS.items()}

    def _settled(self) -> dict[str, float]:
        """Return the counters when nothing has been written for a moment."""
        until = time.monotonic() + _MOST_SETTLE_SECONDS
        now = self._counters()
        while time.monotonic() < until:
            time.sleep(_SETTLED_SECONDS)
            before, now = now, self._counters()
            if now[WRITES] == before[WRITES]:
                break
        return now


def make(members: int, folder: Path, *, patience_seconds: float) -> Iterator[Found]:
    """Make a turn; yield the figures of each change when it is over.

    Raises:
        TurnFailed: A generation doesn't come within `patience_seconds`.
    """
    yield Found(load(members), SYSTEM, (os.getloadavg()[0],), "load")
    folder.mkdir()
    with (
        contextlib.contextmanager(run_etcd)(toolchain.binary("etcd"), folder, free_port()) as url,
        Hosts(url, processes(members)) as hosts,
    ):
        yield from _Job(members, url, hosts, patience_seconds).changes()
