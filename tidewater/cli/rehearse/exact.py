"""What must be equal bit for bit: workers after a step, a state and who got it, two runs without faults, samples.

Pure: records to findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

from tidewater.cli.rehearse.compare import Finding, Promise, differing, found
from tidewater.cli.rehearse.records import Records
from tidewater.cli.rehearse.remedies import Seen, remedy

_SHOWN_SAMPLES = 6


def between_workers(run: Records, passing: Collection[str]) -> Iterator[Finding]:
    """Yield each piece that differs between workers, at the first step where it does.

    ``passing`` are attributes that passes change now and then: see ``caches``.
    """
    known: set[str] = set()
    for step, when, states in _moments(run):
        names = list(states)
        for name in names[1:]:
            for piece, mine, theirs in differing(states[names[0]], states[name]):
                if piece not in known:
                    known.add(piece)
                    where = f"{mine} in {names[0]} and {theirs} in {name} {when}, {run.after(step)}"
                    yield _of(found(Promise.ALIKE, piece, Seen.BETWEEN_WORKERS, where, (mine, theirs)), piece, passing)


def _moments(run: Records) -> Iterator[tuple[int, str, Mapping[str, Mapping[str, str]]]]:
    """Yield the pieces by worker after each step, and after each evaluation."""
    for step, finals in sorted(run.finals.items()):
        yield step, f"after step {step}", {name: each.pieces for name, each in finals.items()}
        if step in run.scored:
            yield step, f"after the evaluation at step {step}", run.had(step)


def handed_over(run: Records, passing: Collection[str]) -> Iterator[Finding]:
    """Yield each piece that a worker did not get as those that had the state recorded it."""
    known: set[str] = set()
    for step, worker, got, all_had in _received(run):
        had = [(name, pieces) for name, pieces in all_had.items() if name != worker]
        for name, pieces in had[:1]:
            for piece, theirs, mine in differing(pieces, got):
                if piece in known or piece.startswith("draws/"):
                    continue
                known.add(piece)
                where = f"{name} had {theirs} after step {step}, and {worker}, which got the state, {mine}"
                where = f"{where}, {run.after(step + 1)}"
                finding = found(Promise.HANDED_OVER, piece, Seen.AFTER_A_TRANSFER, where, (theirs, mine))
                yield _of(finding, piece, passing)


def _received(run: Records) -> Iterator[tuple[int, str, Mapping[str, str], Mapping[str, Mapping[str, str]]]]:
    """Yield the step, the worker, what it has got, and by worker what the others had.

    If ``on_step`` of the step was still to come, the worker has recorded what it had after that.
    """
    for worker, records in run.begun.items():
        yield from ((each.step - 1, worker, each.pieces, run.had(each.step - 1)) for each in records if each.pieces)
    for step, finals in run.finals.items():
        took_part = {name: each.pieces for name, each in finals.items() if each.rank >= 0}
        yield from ((step, worker, each.pieces, took_part) for worker, each in finals.items() if each.rank < 0)


def caches(run: Records) -> frozenset[str]:
    """Return the attributes that passes change now and then: what a process keeps in a cache is its own.

    An attribute that changes in most steps is no cache; it counts something.
    """
    changes: Counter[str] = Counter()
    steps = sorted(run.finals)
    for before, after in pairwise(steps):
        changes.update(piece for piece, _, _ in differing(run.values(before), run.values(after)))
    attributes = {piece for step in steps for piece in run.values(step) if piece.startswith("attribute/")}
    return frozenset(piece for piece in attributes if 2 * changes[piece] < len(steps))


def repeatable(one: Records, other: Records) -> Iterator[Finding]:
    """Yield what differs between two runs without faults at the same size, at the first step where anything does."""
    for what, digests in sorted(one.reads.items()):
        theirs = other.reads.get(what, digests)
        if not (digests <= theirs or theirs <= digests):
            seen = f"{min(digests - theirs)} in one run and {min(theirs - digests)} in another one"
            yield Finding(Promise.REPEATABLE, what, seen, remedy("", Seen.BETWEEN_RUNS))
    for step in sorted(one.finals):
        mine, another, score, their_score = one.any(step), other.any(step), one.score(step), other.score(step)
        if mine is None or another is None:
            continue
        odd = [each for each in differing(one.values(step), other.values(step)) if not each[0].startswith("variable/")]
        if mine.loss != another.loss:
            where = f"{mine.loss!r} in one run and {another.loss!r} in another one, step {step}"
            yield Finding(Promise.REPEATABLE, "the loss", where, remedy("", Seen.BETWEEN_RUNS))
        for piece, value, their_value in odd:
            where = f"{value} in one run and {their_value} in another one after step {step}"
            yield Finding(Promise.REPEATABLE, piece, where, remedy(piece, Seen.BETWEEN_RUNS, value))
        if score and their_score and score.score != their_score.score:
            where = f"{score.score!r} in one run and {their_score.score!r} in another one, after step {step}"
            yield Finding(Promise.REPEATABLE, "the score", where, remedy("", Seen.BETWEEN_RUNS))
            return
        if odd or mine.loss != another.loss:
            return


def samples(run: Records, reference: Records) -> Iterator[Finding]:
    """Yield the steps that were not made of the samples of the undisturbed run, each once."""
    for step, worker in run.repeated:
        where = f"given to {worker} as final twice, {run.after(step)}"
        yield Finding(Promise.SAMPLES, f"step {step}", where, _DEFECT)
    for step in range(1, run.last + 1):
        generations = {final.generation for final in run.finals.get(step, {}).values()}
        if len(generations) > 1:
            yield Finding(Promise.SAMPLES, f"step {step}", f"final in generations {sorted(generations)}", _DEFECT)
        counted, wanted = run.samples(step), reference.samples(step)
        for words, odd in (("lost", wanted - counted), ("counted too often", counted - wanted)):
            if odd:
                listed = ", ".join(map(str, sorted(odd)[:_SHOWN_SAMPLES]))
                yield Finding(
                    Promise.SAMPLES, f"samples {listed}", f"{words} in step {step}, {run.after(step)}", _DEFECT
                )


def epochs(run: Records) -> Iterator[Finding]:
    """Yield the samples that one epoch of a run has twice, or not at all."""
    passes: list[Counter[int]] = [Counter()]
    finished = 0
    for step in range(1, run.last + 1):
        passes[-1].update(run.samples(step))
        final = run.any(step)
        if final is not None and final.epoch > finished:
            finished = final.epoch
            passes.append(Counter())
    for epoch, counted in enumerate(passes[:-1]):
        odd = sorted(sample for sample in {*passes[0], *counted} if counted[sample] != 1)
        if odd:
            listed = ", ".join(f"{sample} ({counted[sample]} times)" for sample in odd[:_SHOWN_SAMPLES])
            yield Finding(Promise.SAMPLES, f"samples {listed}", f"in epoch {epoch}", _DEFECT)


_DEFECT = "this is a defect of Tidewater, or of a stream that does not continue where it says: please report it"


def _of(finding: Finding, piece: str, passing: Collection[str]) -> Finding:
    """Return the finding as a note if it is of a cache."""
    if piece not in passing:
        return finding
    return Finding(finding.promise, finding.piece, finding.where, finding.remedy, note=True)
