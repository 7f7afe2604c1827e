"""The workers' records of their samples, and the check that no sample was lost or repeated.

    scribe = Scribe(path); scribe.write(Attempt(...)); scribe.write(Final(...))       # in a worker
    book = Book(folder); book.refresh(); assert verdict(book, total=50) == []         # in the test

An attempt is written during the backward pass, before any gradient leaves the process. It contains the samples that
the loss function really got and the weight of their mean in the step's gradient. It also names the attempt of the
previous step that it builds on (``base``). The last final step thus leads back through all steps to the first. The
samples of a step are those that the ranks of that one attempt got, independent of any report about it.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field
from pathlib import Path

SUFFIX = ".ledger"
_TOLERANCE = 1e-5
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Attempt:
    """A rank's gradients for a step, or for a micro-batch of its share."""

    step: int
    generation: int
    rank: int
    size: int
    epoch: int
    base: int
    """The generation that applied the step before, as this rank's state has it."""
    weight: float
    """Of the mean over ``samples`` in the gradient of the step; 0 where a rank has no sample."""
    samples: tuple[int, ...]


@dataclass(frozen=True)
class Final:
    """A process has learnt that a step is final."""

    step: int
    generation: int
    rank: int
    size: int
    loss: float
    digest: str
    """Of the whole state after this step; empty if the state had moved on when it was reported."""
    at: float
    """Monotonic time, one clock for all processes of a machine."""
    samples: tuple[int, ...]
    """What the runtime says this process has contributed."""
    scale: float = 1.0
    """Of the loss, with ``--amp fp16``: it is halved with every step that is skipped."""
    part: int = 0
    """Which part of a divided model this process has."""


@dataclass(frozen=True)
class Restored:
    """No process had the job's state, so one has taken it from a checkpoint or from its own outdated state."""

    step: int
    generation: int
    """The one that begins with this."""
    base: int
    """The one that applied that step."""


@dataclass(frozen=True)
class Written:
    """A point in an experiment tracker."""

    step: int
    first: int
    """The step from which on this process has removed what was there, when it began to write."""
    opened: float
    """Monotonic time at which it began to write."""


@dataclass(frozen=True)
class Validated:
    """The totals of a validation that the script of a process has got."""

    epoch: int
    """That has ended."""
    step: int
    generation: int
    times: str
    """How often each sample is in them: one digit for each sample."""
    outputs: float
    """The sum of the model's outputs."""


Entry = Attempt | Final | Restored | Written | Validated
_ENTRIES: dict[str, Callable[..., Entry]] = {
    each.__name__: each for each in (Attempt, Final, Restored, Written, Validated)
}


class Scribe:
    """Appends lines to one process's ledger. Each line has been passed to the kernel when ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, entry: Entry) -> None:
        os.write(self._file, json.dumps([type(entry).__name__, *astuple(entry)]).encode() + b"\n")


def read(line: bytes) -> Entry:
    """Return the entry that ``Scribe.write`` has written."""
    kind, *values = json.loads(line)
    return _ENTRIES[kind](*(tuple(value) if isinstance(value, list) else value for value in values))


@dataclass
class Book:
    """The ledgers of all processes in a folder."""

    folder: Path
    attempts: dict[int, dict[int, list[Attempt]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """By step and generation."""
    finals: dict[int, dict[str, Final]] = field(default_factory=lambda: defaultdict(dict))
    """By step and process."""
    last: dict[str, Final] = field(default_factory=dict)
    """The last final step of each process."""
    took_part: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    """The steps and generations that each process has computed gradients for."""
    built_on: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    """The steps and generations that were the last in its state when each process computed gradients."""
    repeated: list[tuple[str, Final]] = field(default_factory=list)
    """Steps that were reported to a process a second time in the same generation."""
    restored: list[Restored] = field(default_factory=list)
    validated: list[Validated] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    written_to: int = 0
    """The last step with a point that was read for certain together with all points before it."""
    _read: dict[Path, int] = field(default_factory=dict)
    _late: list[tuple[str, Final]] = field(default_factory=list)

    def refresh(self) -> None:
        """Read the lines that were added since the last call.

        The files grow while they are read one after the other. All ranks attempt a step before any of them reports it
        as final, so the attempts are read again after all final steps.
        """
        late, self._late = self._late, []
        for process, entry in [*late, *self._news()]:
            self.add(process, entry)
        self.written_to = max((each.step for each in self.written), default=0)
        for process, entry in self._news():
            if isinstance(entry, Final):
                self._late.append((process, entry))
            else:
                self.add(process, entry)

    def _news(self) -> Iterator[tuple[str, Entry]]:
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                yield path.stem, read(line)

    def add(self, process: str, entry: Entry) -> None:
        if isinstance(entry, Attempt):
            self.attempts[entry.step][entry.generation].append(entry)
            self.took_part[process].add((entry.step, entry.generation))
            self.built_on[process].add((entry.step - 1, entry.base))
        elif isinstance(entry, Restored):
            self.restored.append(entry)
        elif isinstance(entry, Written):
            self.written.append(entry)
        elif isinstance(entry, Validated):
            self.validated.append(entry)
        else:
            before = self.finals[entry.step].get(process)
            if before and before.generation == entry.generation:
                self.repeated.append((process, entry))
            self.finals[entry.step][process] = entry
            self.last[process] = entry

    @property
    def reached(self) -> int:
        """Return the last final step, 0 before the first."""
        return max(self.finals, default=0)

    def without_what_was_undone(self) -> Book:
        """Return a book without the final steps that a return to a checkpoint has undone."""
        kept = Book(
            self.folder,
            self.attempts,
            last=self.last,
            took_part=self.took_part,
            built_on=self.built_on,
            restored=self.restored,
            validated=self.validated,
            written=self.written,
            written_to=self.written_to,
        )
        for step, finals in self.finals.items():
            for process, final in finals.items():
                if not any(step > each.step and final.generation < each.generation for each in self.restored):
                    kept.finals[step][process] = final
        return kept

    def history(self) -> dict[int, list[Attempt]]:
        """Return the attempts of each step up to the last final one. Raise LookupError if the chain is broken."""
        steps: dict[int, list[Attempt]] = {}
        if not self.finals:
            return steps
        generation = next(iter(self.finals[self.reached].values())).generation
        bases = {(each.step, each.generation): each.base for each in self.restored}
        for step in range(self.reached, 0, -1):
            while (step, generation) in bases:  # a state may be left behind several times before it makes a step
                generation = bases.pop((step, generation))
            made = self.attempts.get(step, {}).get(generation, [])
            before = {attempt.base for attempt in made}
            if not made:
                raise LookupError(f"nobody attempted step {step} in generation {generation}, on which all else builds")
            if len(before) > 1:
                raise LookupError(
                    f"step {step} in generation {generation} builds on step {step - 1} of generations {sorted(before)}"
                )
            steps[step] = made
            generation = before.pop()
        return dict(sorted(steps.items()))


def verdict(book: Book, total: int) -> list[str]:
    """Return a sentence for each problem; empty if there is none. ``total``: samples in an epoch."""
    try:
        history = book.history()
    except LookupError as error:
        return [*_undecided(book), str(error)][:_MOST_PROBLEMS]
    problems = [
        *_undecided(book),
        *_rewritten(book, history),
        *_incomplete(history),
        *_miscounted(history, total),
        *_different(book),
        *_misreported(book, history),
        *_unreported(book, history),
        *_unvalidated(book, history),
        *_untracked(book),
    ]
    return problems[:_MOST_PROBLEMS]


def _undecided(book: Book) -> Iterator[str]:
    for step, finals in sorted(book.finals.items()):
        generations: dict[int, list[str]] = defaultdict(list)
        for process, final in finals.items():
            generations[final.generation].append(process)
        if len(generations) > 1:
            told = " and ".join(f"{number} ({', '.join(names)})" for number, names in sorted(generations.items()))
            yield f"step {step} became final in generations {told}"


def _rewritten(book: Book, history: dict[int, list[Attempt]]) -> Iterator[str]:
    for step, made in history.items():
        for process, final in book.finals.get(step, {}).items():
            if final.generation != made[0].generation:
                yield (
                    f"step {step} was reported final in generation {final.generation} by {process}, "
                    f"but what followed builds on generation {made[0].generation}'s"
                )


def _incomplete(history: dict[int, list[Attempt]]) -> Iterator[str]:
    for step, made in history.items():
        ranks, size = {attempt.rank for attempt in made}, made[0].size
        missing = sorted(set(range(size)) - ranks)
        if missing:
            yield f"step {step} (generation {made[0].generation}) lacks the gradients of rank {missing} of {size}"
        if len({attempt.epoch for attempt in made}) > 1:
            yield f"step {step}: its ranks were in different epochs"
        samples = sum(len(attempt.samples) for attempt in made if attempt.weight)
        for attempt in made:
            if abs(attempt.weight * samples - len(attempt.samples)) > _TOLERANCE * samples and attempt.weight:
                yield (
                    f"step {step}: rank {attempt.rank}'s {len(attempt.samples)} of {samples} samples "
                    f"have weight {attempt.weight:g}"
                )


def _miscounted(history: dict[int, list[Attempt]], total: int) -> Iterator[str]:
    uses: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    last = 0
    for step, made in history.items():
        if made[0].epoch < last:
            yield f"step {step} goes back from epoch {last} to {made[0].epoch}"
        last = max(last, made[0].epoch)
        for attempt in made:
            for sample in attempt.samples if attempt.weight else ():
                uses[attempt.epoch][sample].append(step)
    for epoch in range(last + 1):
        used = uses[epoch]
        for sample, steps in sorted(used.items()):
            if len(steps) > 1:
                yield f"epoch {epoch}: sample {sample} was repeated (steps {', '.join(map(str, steps))})"
        lost = sorted(set(range(total)) - set(used))
        if lost and epoch < last:
            yield f"epoch {epoch}: lost {len(lost)} of {total} samples: {', '.join(map(str, lost))}"


def _different(book: Book) -> Iterator[str]:
    for step, finals in sorted(book.finals.items()):
        digests = {(final.part, final.digest) for final in finals.values() if final.digest}
        if max(Counter(part for part, _ in digests).values(), default=0) > 1:
            told = ", ".join(f"{process}: {final.digest}" for process, final in sorted(finals.items()))
            yield f"step {step}: the replicas' states differ ({told})"


def _misreported(book: Book, history: dict[int, list[Attempt]]) -> Iterator[str]:
    for step, made in history.items():
        for process, final in book.finals.get(step, {}).items():
            saw = sorted(sample for a in made if a.rank == final.rank and a.weight for sample in a.samples)
            if saw != sorted(final.samples):
                yield f"step {step}: {process} was told of samples {sorted(final.samples)}, its loss saw {saw}"


def _unreported(book: Book, history: dict[int, list[Attempt]]) -> Iterator[str]:
    """A process that has the result of a final step in which it took part, and goes on, learns once that it is final.

    One that was cut off before it had the result can't: the others may be far ahead when it returns.
    """
    for process, final in book.repeated:
        yield f"step {final.step} was reported twice to {process}"
    for process, parts in sorted(book.took_part.items()):
        last = book.last[process].step if process in book.last else 0
        for step, generation in sorted(parts & book.built_on[process]):
            made = history.get(step)
            if made and made[0].generation == generation and step < last and process not in book.finals.get(step, {}):
                yield f"step {step} (generation {generation}) was never reported to {process}, which took part in it"


def _unvalidated(book: Book, history: dict[int, list[Attempt]]) -> Iterator[str]:
    """Where scripts validate, each finished epoch has totals, with each sample once, and the same ones in all workers.

    All who have totals write them before any of them begins the next epoch.
    """
    outputs: dict[tuple[int, int], set[float]] = defaultdict(set)
    for found in book.validated:
        made = history.get(found.step)
        if made and made[0].epoch != found.epoch:
            yield f"epoch {found.epoch}: its validation was made after step {found.step}, of epoch {made[0].epoch}"
        outputs[found.epoch, found.generation].add(found.outputs)
        wrong = ", ".join(f"sample {sample} {count} times" for sample, count in enumerate(found.times) if count != "1")
        if wrong:
            yield f"epoch {found.epoch}: the totals of its validation in generation {found.generation} have {wrong}"
    for (epoch, generation), sums in sorted(outputs.items()):
        if len(sums) > 1:
            yield f"epoch {epoch}: the totals of its validation in generation {generation} differ: {sorted(sums)}"
    finished = max((made[0].epoch for made in history.values()), default=0)
    lacking = sorted(set(range(finished)) - {epoch for epoch, _ in outputs})
    if outputs and lacking:
        yield f"no worker has got the totals of the validations after epochs {', '.join(map(str, lacking))}"


def _untracked(book: Book) -> Iterator[str]:
    """A tracker has one point for each step, whichever process has written it. The last two may be on their way."""
    points: list[int] = []
    for (_, first), session in itertools.groupby(sorted(book.written, key=_session), key=_session):
        points = [step for step in points if step < first] + [each.step for each in session]
    points = [step for step in points if step <= book.written_to]
    for step, times in Counter(points).items():
        if times > 1:
            yield f"step {step} has {times} points"
    last = max(points, default=0)
    lost = sorted(set(range(1, last + 1)) - set(points))
    if lost or last < book.written_to - 2:
        yield f"of steps 1 to {book.written_to}, the points of {lost or range(last + 1, book.written_to)} are missing"


def _session(written: Written) -> tuple[float, int]:
    return written.opened, written.first
