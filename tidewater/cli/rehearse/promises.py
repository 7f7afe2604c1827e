"""The table of a rehearsal: each promise, held or not, with what is at fault and the remedy.

outcome = judge(Runs(...), failures=[])
print(table(outcome)); json.dumps(report(outcome)); outcome.held
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from typing import Any

from tidewater.cli.rehearse import exact, near
from tidewater.cli.rehearse.compare import Finding, Promise, first
from tidewater.cli.rehearse.records import Records


@dataclass(frozen=True)
class Runs:
    """The records of all runs. One that did not get to its end has a finding in ``failures``."""

    several: Records
    again: Records
    one: Records
    faults: Records


@dataclass(frozen=True)
class Outcome:
    """What a rehearsal has found."""

    findings: Sequence[Finding]
    steps: Mapping[str, int]
    """Final steps of each run."""

    @property
    def held(self) -> bool:
        """Whether every promise holds."""
        return all(finding.note for finding in self.findings)

    def of(self, promise: Promise) -> list[Finding]:
        """Return the findings about one promise."""
        return [finding for finding in self.findings if finding.promise is promise]

    def tried(self, promise: Promise) -> bool:
        """Return whether the runs got so far that they show something about a promise."""
        if promise is Promise.TRAINS:
            return True
        if promise in (Promise.ALIKE, Promise.REPEATABLE):
            return self.steps["again"] > 0
        return self.steps["faults"] > 0


def judge(runs: Runs, failures: Sequence[Finding]) -> Outcome:
    """Return what the records show. ``failures``: what was found while the runs were made."""
    caches = exact.caches(runs.several)
    comparisons: list[Iterable[Finding]] = [
        chain(exact.between_workers(runs.several, caches), exact.between_workers(runs.faults, caches)),
        exact.repeatable(runs.several, runs.again),
        exact.epochs(runs.several),
    ]
    if runs.faults.last:
        comparisons += [
            exact.handed_over(runs.faults, caches),
            exact.samples(runs.faults, runs.several),
            exact.epochs(runs.faults),
            near.losses(runs.faults, runs.several, runs.one),
            near.scores(runs.faults, runs.several, runs.one),
            near.states(runs.faults, runs.several, runs.one),
        ]
    findings = [finding for each in comparisons for finding in first(each)]
    steps = {name: run.last for name, run in vars(runs).items()}
    return Outcome([*failures, *findings], steps)


def table(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield the lines of the table, each with its style."""
    for promise in Promise:
        findings = outcome.of(promise)
        broken = [each for each in findings if not each.note]
        if broken:
            yield f"✗ {promise.value}", "red"
        elif outcome.tried(promise):
            yield f"✓ {promise.value}", "green"
        else:
            yield f"- {promise.value}: not tried", "dim"
        for finding, following in zip_longest(findings, findings[1:]):
            yield f"  {'note: ' if finding.note else ''}{finding.sentence}", ""
            if following is None or following.remedy != finding.remedy:
                yield f"  → {finding.remedy}", "dim"


def report(outcome: Outcome, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outcome for a program. ``about``: what was rehearsed."""
    return {
        **about,
        "held": outcome.held,
        "steps": dict(outcome.steps),
        "promises": [
            {
                "promise": promise.name.lower(),
                "text": promise.value,
                "held": not any(not each.note for each in outcome.of(promise)) if outcome.tried(promise) else None,
                "findings": [
                    {**asdict(each), "promise": promise.name.lower(), "what": each.what} for each in outcome.of(promise)
                ],
            }
            for promise in Promise
        ],
        "tolerance": f"{near.FACTOR:g} times the largest difference between the runs without faults of several workers "
        f"and of one, and at least {near.LEAST:.2g} of the size, or {near.ROUNDINGS:g} rounding errors of its type",
    }
