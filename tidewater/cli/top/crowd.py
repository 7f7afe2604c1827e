"""A job with many workers: what is said about all of them, and which ones have a row. Pure.

A job with up to MOST_ROWS workers has a row for each, and needs nothing of this.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidewater.cli.show import plural
from tidewater.cli.top.samples import Worker
from tidewater.cli.top.sampling import Answers, alternating

MOST_ROWS = 40
"""Workers that have a row each."""
_SILENT = "No answer"
_WELL = ("Running", "Succeeded")


def worst(workers: Sequence[Worker], most: int) -> list[Worker]:
    """Return the workers that have a row, from four lists in turn.

    The lists: the others wait for it; it hasn't answered; it doesn't run, with the rarest states first; it waits most.
    The state of one without an answer says so: its row would look like that of one that has not been asked yet.
    """
    counts = Counter(worker.state for worker in workers)
    slow = sorted((each for each in workers if _slow(each)), key=_slow, reverse=True)
    silent = [each for each in workers if each.scraped.silence]
    ill = sorted((each for each in workers if each.state not in _WELL), key=lambda each: counts[each.state])
    waits = sorted((each for each in workers if _waits(each)), key=_waits, reverse=True)
    bad = alternating(*([each.uid for each in found] for found in (slow, silent, ill, waits)))
    by_uid = {each.uid: replace(each, state=_SILENT) if each.scraped.silence else each for each in workers}
    return [by_uid[uid] for uid in dict.fromkeys([*bad, *(each.uid for each in workers)])][:most]


def summary(workers: Sequence[Worker]) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences about all workers."""
    counts = [f"{count} {state}" for state, count in Counter(worker.state for worker in workers).most_common()]
    silent = sum(bool(worker.scraped.silence) for worker in workers)
    yield "workers", "  ".join([*counts, *([f"{silent} without an answer"] if silent else [])])
    recent = [each for each in workers if _step(each) and not each.scraped.unasked]
    if recent:
        last, middle = min(recent, key=_step), statistics.median_low(map(_step, recent))
        yield "steps", f"median {middle}  lowest {_step(last)} ({last.name})  of {len(recent)} asked in this look"
    trained = [each for each in workers if _step(each)]
    if trained:
        most, usual = max(trained, key=_waits), statistics.median(map(_waits, trained))
        yield "waits", f"median {usual:.3g} s per step  most {_waits(most):.3g} s ({most.name})"


def turns(workers: int, answers: Answers) -> str:
    """Return how many of the processes are asked in one look."""
    more = f" with {answers.processes} processes" if answers.processes > workers else ""
    return f"{plural(workers, 'worker')}{more}; {answers.asked_last} asked per look, in turn"


def _slow(worker: Worker) -> float:
    return max((each.straggler for each in worker.scraped.readings.values()), default=0.0)


def _waits(worker: Worker) -> float:
    return max((each.waits for each in worker.scraped.readings.values()), default=0.0)


def _step(worker: Worker) -> int:
    return max((each.step or 0 for each in worker.scraped.readings.values()), default=0)
