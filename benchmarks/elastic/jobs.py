"""One job of one system: its nodes, their records, and the gate that stops them.

    with Job(system, site) as job:
        job.start()
        job.steady(world=3)
        job.nodes[1].signal(signal.SIGKILL)
        line = job.wait(lambda lines: first_step(lines, nodes={0, 2}, world=2, after=at), 120, "a step with two")

Every wait has a limit. A node that ends unexpectedly is an error that shows its log.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from benchmarks.elastic.systems import Site, System
from benchmarks.elastic.timeline import Line, Pair, pairs, parse
from benchmarks.elastic.workers import names
from benchmarks.harness.command import TurnFailed
from tests.elastic.workers import free_port
from tests.processes import Process, wait_for_port

T = TypeVar("T")

POLL_SECONDS = 0.05
START_SECONDS = 180.0
SERVICE_SECONDS = 30.0
PARK_SECONDS = 180.0


class Job:
    """The nodes of one job. Leaving the `with` block ends every process."""

    def __init__(self, system: System, site: Site) -> None:
        self.system, self.site = system, site
        self.nodes: dict[int, Process] = {}
        self._service: Process | None = None
        self._port = 0
        self._offsets: dict[str, int] = {}
        self._lines: list[Line] = []
        self._starts = 0

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def start(self, nodes: int | None = None) -> None:
        """Start the service and every node, or the first ``nodes``, with the gate open.

        Raises:
            TurnFailed: the service doesn't answer.
        """
        for folder in ("steps", "pairs", "checkpoints"):
            (self.site.folder / folder).mkdir(parents=True, exist_ok=True)
        self._set_gate(names.OPEN)
        if self.system.service:
            self._port = free_port()
            environment = self.site.environment(0)
            argv = self.system.service(self.site, self._port)
            self._service = Process("service", argv, environment, self.site.folder)
            if not wait_for_port(self._port, SERVICE_SECONDS):
                raise TurnFailed(f"{self.system.name}: its service doesn't listen:\n{self._service.last_lines()}")
        for node in range(self.site.nodes if nodes is None else nodes):
            self.start_node(node)

    def start_node(self, node: int) -> float:
        """Start a node (again). Return the time just before."""
        self._starts += 1
        at = time.monotonic()
        argv = self.system.node(self.site, self._port, node)
        environment = self.site.environment(node) | self.system.environment(self.site, self._port, node)
        self.nodes[node] = Process(f"node-{node}-{self._starts}", argv, environment, self.site.folder)
        return at

    def is_over(self, node: int) -> bool:
        """Return whether that ended node was refused permanently, as every other one would be."""
        return self.system.over is not None and self.system.over in self.nodes[node].last_lines()

    def give_up(self) -> None:
        """End the nodes. Nodes started from now on belong to another attempt."""
        self._end_nodes()
        self.site = replace(self.site, attempt=self.site.attempt + 1)

    def end(self) -> None:
        """End all processes. Safe to call again."""
        self._end_nodes()
        if self._service:
            self._service.end()
        self._service = None

    def _end_nodes(self) -> None:
        for process in self.nodes.values():
            process.end()
        self.nodes.clear()

    def pids(self) -> list[int]:
        """Of all the job's processes but its service."""
        return [pid for process in self.nodes.values() for pid in process.tree()]

    @property
    def lines(self) -> list[Line]:
        """Return the steps recorded since `forget`, in no particular order across processes."""
        for file in os.scandir(self.site.folder / "steps"):
            begin = self._offsets.get(file.name, 0)
            if file.stat().st_size == begin:
                continue
            with open(file.path, "rb") as opened:
                opened.seek(begin)
                whole, end, _ = opened.read().rpartition(b"\n")
            self._offsets[file.name] = begin + len(whole) + len(end)
            self._lines += parse(int(file.name.partition("-")[0]), f"{whole.decode()}\n" if end else "")
        return self._lines

    def pairs(self) -> list[Pair]:
        """Return the pairs of a parked job with plain training in its workers; no worker may have been replaced."""
        return pairs([file.read_text() for file in (self.site.folder / "pairs").iterdir()])

    def forget(self) -> None:
        """Drop all lines read so far except the last of each worker, so that waits cost the trainers little."""
        self._lines = list({line.node: line for line in sorted(self.lines, key=lambda line: line.at)}.values())

    def wait(self, condition: Callable[[list[Line]], T | None], seconds: float, what: str) -> T:
        """Wait until `condition` finds something in the lines, and return it.

        Raises:
            TurnFailed: Nothing within `seconds`, or a node has ended unexpectedly.
        """
        deadline = time.monotonic() + seconds
        while True:
            found = condition(self.lines)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise TurnFailed(f"{self.system.name}: {what} didn't come within {seconds:.0f} s")
            self.check()
            time.sleep(POLL_SECONDS)

    def check(self) -> None:
        """Raise TurnFailed if a node has ended by itself."""
        for process in self.nodes.values():
            if process.exit_code is not None:
                raise TurnFailed(
                    f"{self.system.name}: {process.name} ended with {process.exit_code}:\n{process.last_lines()}"
                )

    def steady(self, *, world: int, after: float = 0.0) -> None:
        """Wait until every worker has made some consecutive steps as one of `world`, after `after`."""

        def settled(lines: list[Line]) -> bool | None:
            recent: dict[int, int] = {}
            for line in lines:
                if line.at > after:
                    recent[line.node] = recent.get(line.node, 0) + 1 if line.world == world else 0
            return True if len(recent) >= world and min(recent.values()) >= self.site.steady_steps else None

        self.wait(settled, START_SECONDS, f"steady training by {world}")

    def open_gate(self) -> None:
        """Open the gate: training continues."""
        self._set_gate(names.OPEN)

    def park(self) -> int:
        """Stop training at a step in the near future, and wait until all workers are there. Return the step."""
        return self.run_to(max((line.step for line in self.lines), default=0) + self.site.gate_steps)

    def run_to(self, step: int) -> int:
        """Let training continue to `step`, and wait until all workers have made it. Return the step."""
        self._set_gate(step)
        world = self.site.nodes

        def arrived(lines: list[Line]) -> bool | None:
            return True if len({line.node for line in lines if line.step == step}) >= world else None

        self.wait(arrived, PARK_SECONDS, f"step {step} of all workers")
        return step

    def _set_gate(self, step: int) -> None:
        gate = self.site.folder / "gate"
        if not gate.exists():
            gate.write_bytes(struct.pack(names.GATE_FORMAT, step))
        # In place, because the workers have the file mapped.
        with gate.open("r+b") as opened:
            opened.write(struct.pack(names.GATE_FORMAT, step))
