"""The records of one run, in the order of steps.

run = Records()
run.add("worker-0.4711", record)
run.finals[12]["worker-0"]          # what worker-0 recorded after step 12
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidewater.contract.rehearsal import Begun, Final, Read, Record, Scored


@dataclass(frozen=True)
class Event:
    """What the rehearsal has done to the workers, after a step."""

    step: int
    text: str


@dataclass
class Records:
    """What the workers of one run have recorded. Each worker is one process."""

    finals: dict[int, dict[str, Final]] = field(default_factory=lambda: defaultdict(dict))
    """By step and worker."""
    scored: dict[int, dict[str, Scored]] = field(default_factory=lambda: defaultdict(dict))
    """Evaluations, by the step before and worker. Of a repeated one the last counts."""
    begun: dict[str, list[Begun]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The digests that each sample had."""
    events: list[Event] = field(default_factory=list)
    repeated: list[tuple[int, str]] = field(default_factory=list)
    """Steps that a worker was given as final twice, and not because it got the state after them."""

    def add(self, process: str, record: Record) -> None:
        """Add a record of a process."""
        worker = process.partition(".")[0]
        if isinstance(record, Begun):
            self.begun[worker].append(record)
        elif isinstance(record, Read):
            self.reads[record.what].add(record.digest)
        elif isinstance(record, Scored):
            self.scored[record.step][worker] = record
        else:
            if worker in self.finals[record.step] and record.rank >= 0:
                self.repeated.append((record.step, worker))
            self.finals[record.step][worker] = record

    def step_of(self, worker: str) -> int:
        """Return the step that a worker has begun last; 0 if none."""
        return self.begun[worker][-1].step if self.begun.get(worker) else 0

    @property
    def last(self) -> int:
        """Return the last final step."""
        return max(self.finals, default=0)

    def after(self, step: int) -> str:
        """Return what happened last before this step, as the end of a sentence."""
        before = [event for event in self.events if event.step < step]
        return f"after {before[-1].text} (step {before[-1].step})" if before else "before any fault"

    def samples(self, step: int) -> Counter[int]:
        """Return how often a final step contains each sample."""
        finals = self.finals.get(step, {})
        made = {(final.step, final.generation) for final in finals.values()}
        begun = (each for records in self.begun.values() for each in records)
        return Counter(sample for each in begun if (each.step, each.generation) in made for sample in each.samples)

    def any(self, step: int) -> Final | None:
        """Return the record of one worker that has the state after the step."""
        return next((each for each in self.finals.get(step, {}).values()), None)

    def score(self, step: int) -> Scored | None:
        """Return the record of one worker of the evaluation after the step."""
        return next((each for each in self.scored.get(step, {}).values()), None)

    def had(self, step: int) -> Mapping[str, Mapping[str, str]]:
        """Return by worker the pieces with which the next step begins: those after the evaluation, if there was one."""
        return {name: each.pieces for name, each in (self.scored.get(step) or self.finals.get(step, {})).items()}

    def values(self, step: int) -> Mapping[str, str]:
        """Return the pieces of the state after a step, as one worker that took part has it."""
        whole = [each for each in self.finals.get(step, {}).values() if each.rank >= 0]
        return whole[0].pieces if whole else {}
