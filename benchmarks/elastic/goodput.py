"""Measures the share of an undisturbed run's work that is done while workers are killed, with the same trace for all.

A restart loop starts a killed worker again some seconds after its end, like a pod. A job that permanently refuses its
nodes is restarted as a whole, like RestartJob of a queue.
All workers share one machine, and the imports of a returning worker would use the processors of the others. So every
step of every system also sleeps for a while, as if an accelerator worked, and leaves processors free. A step takes as
long with two workers as with three. So the result is the loss of time and work, without the absent worker's share of
speed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from benchmarks.elastic.jobs import Job, JobBroken
from benchmarks.elastic.timeline import NEAR_SECONDS, Span, disturbances, kept_samples, undisturbed_samples
from benchmarks.elastic.trace import Kill

RESTART_SECONDS = 5.0
_TICK_SECONDS = 0.1


def run(job: Job, trace: Sequence[Kill], seconds: float, say: Callable[[str], None]) -> float:
    """Return the percentage of an undisturbed run's samples that were committed and kept. The job has ended then.

    The undisturbed pace is that of this job just before and after each kill (see ``undisturbed_samples``).
    """
    job.open_gate()
    world = job.site.nodes
    job.steady(world=world)
    begin = time.monotonic()
    time.sleep(NEAR_SECONDS)
    start = time.monotonic()
    killed = _disturb(job, trace, start, seconds, say)
    end = time.monotonic()
    try:
        job.steady(world=world, after=end)
        time.sleep(NEAR_SECONDS)
    except JobBroken as error:  # the results before it still count
        say(f"no pace after the trace: {error}")
    lines, record = job.lines, Span(begin, time.monotonic())
    disturbed = disturbances(lines, killed, world=world, end=record.end)
    kept = kept_samples(lines, start, end)
    undisturbed = undisturbed_samples(lines, disturbed, Span(start, end), record)
    say(f"{job.system.name}: {kept} samples of {undisturbed:.0f} without the kills")
    return 100 * kept / undisturbed


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


def next_alive(node: int, alive: Sequence[int], nodes: int) -> int | None:
    """Return `node` if it is alive, otherwise the next living one in a circle."""
    return next((number % nodes for number in range(node, node + nodes) if number % nodes in alive), None)
