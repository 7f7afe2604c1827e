"""The benchmark's measures, by their names in the records, in the table's order."""

from __future__ import annotations

from benchmarks.elastic import faults, paced

STEPS = {name: (f"{name} step", f"{name} step / plain DDP's") for name in paced.SIZES}
"""How long a step takes, and how many times as long as plain DDP's."""
LOOPS = {
    "own-loop": ("own loop's step", "own loop's step / tidewater.run's"),
    "trainer": ("Trainer's step", "Trainer's step / plain Trainer's"),
}
"""The same, of two ways to write the loop."""
CHECKPOINT = "checkpoint every 100 steps: time lost"
TRANSFER = "a state of 512 MB, to a newcomer"
TRANSFER_MEMORY = "a newcomer's memory / a state of 512 MB"
GOODPUT = "goodput: work done by the workers present"
UNDISTURBED = "goodput: work done, of an undisturbed run's"
PLAIN_DDP = "plain DDP"
"""In addition to the systems, for the time of a step."""
RUN, PLAIN_TRAINER = "tidewater.run", "plain Trainer"
"""In addition to the systems, for the time of a loop's step."""
PLAIN_BROADCAST = "torch's broadcast"
"""In addition to the systems, for the transfer."""
_LARGE = "large model, "


def named(measure: str, *, large: bool) -> str:
    """Return the name of a measure of a fault for the small model or the large one."""
    return f"{_LARGE}{measure}" if large else measure


def _of_faults(large: bool) -> list[str]:
    shown = [measure for fault in faults.FAULTS.values() for measure in (fault.headline, f"{fault.name}: steps lost")]
    joins = [f"{faults.JOIN}: {what}" for what in ("pause", "steps lost", "from the process's start")]
    return [named(measure, large=large) for measure in (faults.STEP, *shown, *joins)]


MEASURES = (
    *_of_faults(large=False),
    *_of_faults(large=True),
    GOODPUT,
    UNDISTURBED,
    *(measure for pair in (*STEPS.values(), *LOOPS.values()) for measure in pair),
    CHECKPOINT,
    TRANSFER,
    TRANSFER_MEMORY,
)
CAPS = {
    named(fault.headline, large=large): fault.cap_seconds for fault in faults.FAULTS.values() for large in (False, True)
}
"""Where the benchmark stopped waiting: a value of this size says "longer"."""
