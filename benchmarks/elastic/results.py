"""The benchmark's measures, by their names in the records, in the table's order."""

from __future__ import annotations

from benchmarks.elastic import faults, paced
from benchmarks.elastic.faults import Fault
from benchmarks.elastic.workers import names

STEPS = {name: (f"{name} step", f"{name} step / plain DDP's") for name in paced.SIZES}
"""How long a step takes, and how many times as long as plain DDP's."""
LOOPS = {
    "own-loop": ("own loop's step", "own loop's step / tidewater.run's"),
    "trainer": ("Trainer's step", "Trainer's step / plain Trainer's"),
}
"""The same, of two ways to write the loop."""
DIVIDED = ("divided model, step", "divided model, step / plain FSDP2's")
DIVIDED_CPU = ("divided model, CPU time of a step", "divided model, CPU time of a step / plain FSDP2's")
DIVIDED_MEMORY = ("divided model, memory of a process", "divided model, memory of a process / plain FSDP2's")
"""The same, of a model that the processes of a worker divide."""
CHECKPOINT = "checkpoint every 100 steps: time lost"
TRANSFER = "a state of 512 MB, to a newcomer"
TRANSFER_MEMORY = "a newcomer's memory / a state of 512 MB"
GOODPUT = "goodput: work done by the workers present"
UNDISTURBED = "goodput: work done, of an undisturbed run's"
PLAIN_DDP = "plain DDP"
"""In addition to the systems, for the time of a step."""
RUN, PLAIN_TRAINER = "tidewater.run", "plain Trainer"
"""In addition to the systems, for the time of a loop's step."""
PLAIN_FSDP = "plain FSDP2"
"""In addition to the systems, for a divided model."""
PLAIN_BROADCAST = "torch's broadcast"
"""In addition to the systems, for the transfer."""
FAULTS: dict[str, tuple[Fault, ...]] = {
    names.SMALL: tuple(faults.FAULTS.values()),
    names.LARGE: tuple(faults.FAULTS.values()),
    names.DIVIDED: (faults.KILL,),
}
"""By the model."""
WORKERS = {names.SMALL: 3, names.LARGE: 3, names.DIVIDED: 2}
"""Of a job of faults, by the model."""


def named(measure: str, model: str) -> str:
    """Return the name of a measure of a fault for one of the models."""
    return measure if model == names.SMALL else f"{model} model, {measure}"


def _of_faults(model: str) -> list[str]:
    shown = [measure for fault in FAULTS[model] for measure in (fault.headline, f"{fault.name}: steps lost")]
    join = faults.join_of(WORKERS[model])
    joins = [f"{join}: {what}" for what in ("pause", "steps lost", "from the process's start")]
    return [named(measure, model) for measure in (faults.step_of(WORKERS[model]), *shown, *joins)]


MEASURES = (
    *(measure for model in FAULTS for measure in _of_faults(model)),
    GOODPUT,
    UNDISTURBED,
    *(measure for pair in (*STEPS.values(), *LOOPS.values()) for measure in pair),
    *DIVIDED,
    *DIVIDED_CPU,
    *DIVIDED_MEMORY,
    CHECKPOINT,
    TRANSFER,
    TRANSFER_MEMORY,
)
CAPS = {named(fault.headline, model): fault.cap_seconds for model, each in FAULTS.items() for fault in each}
"""Where the benchmark stopped waiting: a value of this size says "longer"."""
