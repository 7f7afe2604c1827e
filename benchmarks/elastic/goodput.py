"""Measures the work that is done while workers are killed, with the same trace for all systems.

A restart loop starts a killed worker again some seconds after its end, like a pod. A job that permanently refuses its
nodes is restarted as a whole, like RestartJob of a queue.
All workers share one machine, and the imports of a returning worker would use the processors of the others. So every
worker of every system also sleeps in each step, as if an accelerator worked, and leaves the processors free. It sleeps
in proportion to its share of the batch, so two workers take half as long again as three. The network is small enough
(WIDTH) that a step is nearly all sleep.

The result has two shares. `undisturbed` compares with a job in which no worker is killed, so it also contains the work
that the absent worker doesn't do. `present` compares with what the existing workers could do. A killed worker counts as
absent for RESTART_SECONDS and for the time that a process needs for the imports of all systems. Meanwhile the job
counts as a third slower. The time that a system needs beyond that to admit the worker counts against the system.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import Site
from benchmarks.elastic.timeline import NEAR_SECONDS, Span, disturbances, kept_samples, undisturbed_samples
from benchmarks.harness.command import TurnFailed
from tidewater.elastic.launch.lifeline import bound_to

RESTART_SECONDS = 5.0
WIDTH = 8
_TICK_SECONDS = 0.1
_LOADS = 3
_LOAD_SECONDS = 120.0


@dataclass(frozen=True)
class Shares:
    """Percentages of the samples that could have been committed and kept."""

    undisturbed: float
    """By a job without kills."""
    present: float
    """By the workers that exist."""


@dataclass(frozen=True)
class Kill:
    """The kill of a worker, `at` seconds after the beginning of the trace."""

    at: float
    node: int


def scattered(*, seed: str, count: int, seconds: float, nodes: int) -> tuple[Kill, ...]:
    """Return `count` kills at independent, uniform times: a Poisson process, given the number of its events."""
    # A string seeds Python's generator the same way on every machine and version.
    chance = random.Random(f"kills/{seed}")
    return tuple(Kill(at, chance.randrange(nodes)) for at in sorted(chance.uniform(0, seconds) for _ in range(count)))


def loading_seconds(site: Site) -> float:
    """Return how long a process takes to import what the workers of all systems import."""
    command = [str(site.python), "-c", "import benchmarks.elastic.workers.record"]
    environment = {**os.environ, **site.environment(node=0)}
    spent = []
    for _ in range(_LOADS):
        begin = time.monotonic()
        subprocess.run(command, env=environment, check=True, timeout=_LOAD_SECONDS, preexec_fn=bound_to(os.getpid()))
        spent.append(time.monotonic() - begin)
    return statistics.median(spent)


def run(job: Job, trace: Sequence[Kill], seconds: float, say: Callable[[str], None]) -> Shares:
    """Return the shares. All nodes run, and the job's gate is open.

    The undisturbed pace is that of this job just before and after each kill (see ``undisturbed_samples``).
    """
    job.open_gate()
    world = job.site.nodes
    job.steady(world=world)
    loading = loading_seconds(job.site)
    say(f"{job.system.name}: a returning worker loads for {loading:.1f} s")
    begin = time.monotonic()
    time.sleep(NEAR_SECONDS)
    start = time.monotonic()
    killed = _disturb(job, trace, start, seconds, say)
    end = time.monotonic()
    try:
        job.steady(world=world, after=end)
        time.sleep(NEAR_SECONDS)
    except TurnFailed as error:  # the results before it still count
        say(f"no pace after the trace: {error}")
    lines, record = job.lines, Span(begin, time.monotonic())
    disturbed = disturbances(lines, killed, world=world, end=record.end)
    kept = kept_samples(lines, start, end)
    absent = absences(killed, RESTART_SECONDS + loading)
    whole = undisturbed_samples(lines, disturbed, Span(start, end), record)
    possible = undisturbed_samples(lines, disturbed, Span(start, end), record, absent=absent, world=world)
    say(f"{job.system.name}: {kept} samples of {whole:.0f} without the kills, {possible:.0f} by the workers there")
    return Shares(undisturbed=100 * kept / whole, present=100 * kept / possible)


def _disturb(
    job: Job, trace: Sequence[Kill], start: float, seconds: float, say: Callable[[str], None]
) -> list[tuple[float, int]]:
    """The time of each kill, and its node."""
    killed: list[tuple[float, int]] = []
    ended: dict[int, float] = {}
    todo = list(trace)
    while (now := time.monotonic() - start) < seconds:
        gone = [node for node, process in job.nodes.items() if process.exit_code is not None]
        if any(job.is_over(node) for node in gone):
            say(f"{job.system.name}: {now:.0f} s: the job is over for all and is started anew")
            job.give_up()
            gone = list(range(job.site.nodes))
        for node in gone:
            job.nodes.pop(node, None)
            ended[node] = now
        for node, at in list(ended.items()):
            if now >= at + RESTART_SECONDS:
                del ended[node]
                job.start_node(node)
        if todo and now >= todo[0].at:
            victim = next_alive(todo.pop(0).node, sorted(job.nodes), job.site.nodes)
            if victim is not None:
                say(f"{job.system.name}: {now:.0f} s: kill of node {victim}, {len(todo)} more to come")
                job.nodes[victim].signal(signal.SIGKILL)
                killed.append((time.monotonic(), victim))
        time.sleep(_TICK_SECONDS)
    return killed


def absences(killed: Sequence[tuple[float, int]], seconds: float) -> list[Span]:
    """Return for each kill, given by its time and node, the span in which the node can't work.

    A node that is killed again while it is absent is absent once.
    """
    later = {kill: [at for at, node in killed if node == kill[1] and at > kill[0]] for kill in killed}
    return [Span(at, min([at + seconds, *later[at, node]])) for at, node in killed]


def next_alive(node: int, alive: Sequence[int], nodes: int) -> int | None:
    """Return `node` if it is alive, otherwise the next living one in a circle."""
    return next((number % nodes for number in range(node, node + nodes) if number % nodes in alive), None)
