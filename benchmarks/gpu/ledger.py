"""The workers' ledgers of samples and states, and the check that nothing was lost, used twice, or different.

    ledger = Ledger(file); ledger.saw([3, 7]); ledger.final(report, digest)           # in a worker
    verdict(read(folder), total=2048).problems                                        # in the check

A worker writes down which samples its loss really gets, before their gradients leave the process, and every final step
that the runtime reports, with a digest of model and optimizer. A killed worker can't report its last steps, nor can one
that gets a newer state from another. Then its share must be one of the sets that its loss got.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidewater.elastic.training import Report

SUFFIX = ".ledger"
FOLDER, OLD_TORCH = "BENCH_LEDGERS", "BENCH_OLD_TORCH"
"""Environment variables of the workers: where they write, and whether torch is to be like one before 2.14."""
FAIL, STATE_MIB = "BENCH_FAIL", "BENCH_STATE_MIB"
"""The same: a file with the node of the worker that is to fail, and the least size of the state."""
TOTAL = 500
"""Samples in an epoch. No multiple of the batch size, so the last step of an epoch is smaller."""
_MOST_PROBLEMS = 20
_BEHIND = 4
"""Steps that a worker can have contributed to without a report: one is reported when the next one is summed."""


@dataclass(frozen=True)
class Final:
    """A final step, as one worker reports it."""

    step: int
    generation: int
    rank: int
    """-1 if the worker took no part in the step, but got the state with the report of it."""
    size: int
    loss: float
    batch_size: int
    """Samples of all ranks together."""
    digest: str
    """Of model and optimizer after the step."""
    samples: tuple[int, ...]
    """This rank's."""


@dataclass
class Worker:
    """What one process has written."""

    saw: list[tuple[int, ...]] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)

    def unreported(self, step: int) -> list[tuple[int, ...]]:
        """Return what it saw after the last step that it reported before `step`, if that is few steps ago."""
        before = [final for final in self.finals if final.step < step]
        if not before or before[-1].step < step - _BEHIND:
            return []
        took_part = [final for final in before if final.rank >= 0]
        last = sorted(took_part[-1].samples) if took_part else None
        place = max((place for place, saw in enumerate(self.saw) if sorted(saw) == last), default=-1)
        return self.saw[place + 1 :][:_BEHIND]


@dataclass(frozen=True)
class Verdict:
    """What the ledgers of a job show."""

    problems: Sequence[str]
    """One sentence each; at most twenty."""
    steps: int
    compared: int
    """Number of steps after which the state of at least two workers was compared."""
    lost: int
    twice: int


class Ledger:
    """Appends lines to the file of one process. A killed process has written all its complete lines."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def saw(self, samples: Sequence[int]) -> None:
        """Note the samples of a forward pass."""
        os.write(self._file, json.dumps(["saw", *samples]).encode() + b"\n")

    def final(self, report: Report, digest: str) -> None:
        """Note a final step."""
        values = (report.step, report.generation, report.rank, report.world_size, report.loss, report.batch_size)
        os.write(self._file, json.dumps(["final", *values, digest, list(report.samples)]).encode() + b"\n")


def read(folder: Path) -> dict[str, Worker]:
    """Return what each process has written, by the name of its file."""
    workers = {}
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        worker = workers[file.stem] = Worker()
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                kind, *values = json.loads(line)
                if kind == "saw":
                    worker.saw.append(tuple(values))
                else:
                    values[-1] = tuple(values[-1])
                    worker.finals.append(Final(*values))
    return workers


def verdict(workers: Mapping[str, Worker], total: int) -> Verdict:
    """Return what the ledgers show. `total`: samples in an epoch."""
    finals: dict[int, dict[str, Final]] = defaultdict(dict)
    for name, worker in workers.items():
        for final in worker.finals:
            finals[final.step][name] = final
    problems: list[str] = []
    steps, done = max(finals, default=0), 0
    epochs: dict[int, int] = {}
    used: dict[int, list[int]] = defaultdict(list)
    for step in range(1, steps + 1):
        reported = finals.get(step)
        if not reported:
            problems.append(f"step {step}: no worker has reported it")
            break
        problems += _differences(step, reported)
        epochs[step] = done // total
        used[epochs[step]] += [sample for final in reported.values() for sample in final.samples]
        done += next(iter(reported.values())).batch_size
    for step, epoch in epochs.items():
        used[epoch] += _unreported(step, finals[step], workers, set(used[epoch]), problems)
    lost = sum(len(set(range(total)) - set(used[epoch])) for epoch in range(done // total))
    twice = sum(len(samples) - len(set(samples)) for samples in used.values())
    if lost or twice:
        problems.append(f"{lost} samples were lost and {twice} used twice")
    compared = sum(len(reported) > 1 for reported in finals.values())
    return Verdict(problems[:_MOST_PROBLEMS], steps, compared, lost, twice)


def _differences(step: int, reported: Mapping[str, Final]) -> list[str]:
    """Return in what the workers' reports of a step differ."""
    found = []
    for what, values in (
        ("generations", {name: final.generation for name, final in reported.items()}),
        ("losses", {name: final.loss for name, final in reported.items()}),
        ("states", {name: final.digest for name, final in reported.items()}),
    ):
        if len(set(values.values())) > 1:
            found.append(f"step {step}: the workers have different {what}: {values}")
    # -1: it took no part, as several newcomers may
    ranks = [final.rank for final in reported.values() if final.rank >= 0]
    if len(set(ranks)) < len(ranks):
        found.append(f"step {step}: two workers report the same rank")
    return found


def _unreported(
    step: int, reported: Mapping[str, Final], workers: Mapping[str, Worker], used: set[int], problems: list[str]
) -> list[int]:
    """Return the shares of workers that have not reported the step. Add to `problems` if they are not enough.

    `used`: all samples of the epoch that are accounted for. What a worker saw of a step that the others repeated
    without it is among them.
    """
    one = next(iter(reported.values()))
    missing = one.batch_size - sum(len(final.samples) for final in reported.values())
    found: list[int] = []
    for name, worker in workers.items():
        if missing and name not in reported:
            shares = [saw for saw in worker.unreported(step) if not {*used, *found} & set(saw)]
            found += shares[0] if shares else ()
    if len(found) != missing:
        problems.append(f"step {step}: {missing - len(found)} of its {one.batch_size} samples are of no worker's loss")
    return found
