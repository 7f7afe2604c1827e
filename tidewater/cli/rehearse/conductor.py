"""The runs of a rehearsal: undisturbed ones, and one to which everything happens.

    act = Act(...)
    undisturbed(troupe, ["worker-0", "worker-1"], steps=36)
    disturbed(troupe, workers=2, steps=36, say=print)

The disturbed run waits at the gate before each fault, so it happens at a step and not at a time:

    all train · one is killed · one joins · the oldest is frozen, and returns · it leaves · all stop, others resume
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from tidewater.cli.rehearse.troupe import Stuck, Troupe
from tidewater.contract.exit_codes import FINISHED

BETWEEN = 2
"""Steps between two faults."""
LEAST_STEPS = 30
_LOOK_SECONDS = 0.3
"""How long a step of one worker may take, until the next one is let begin while a newcomer is waited for."""

Say = Callable[[str], None]


def undisturbed(troupe: Troupe, workers: Sequence[str], steps: int) -> None:
    """Start a run that nothing disturbs: it needs all of these workers. Wait with ``finished``."""
    troupe.open(steps)
    troupe.start(*workers)


def finished(troupe: Troupe) -> None:
    """Wait until all workers have ended because the job is finished. Raise Failure."""
    troupe.wait_for(lambda: not troupe.alive, "the end of the job")
    if FINISHED not in troupe.codes.values():
        raise Stuck("no worker has finished the job")


def disturbed(troupe: Troupe, workers: int, steps: int, say: Say) -> None:
    """Make the run with all faults. Raise Failure."""
    names = [f"worker-{index}" for index in range(workers)]
    troupe.start(*names)
    _gather(troupe, names, steps)
    _go_on(troupe, names)
    lost = names.pop()
    say(f"{lost} is killed")
    troupe.send(lost, signal.SIGKILL)
    troupe.happened(f"the kill of {lost}")
    _go_on(troupe, names)

    newcomer = f"worker-{workers}"
    say(f"{newcomer} joins")
    troupe.start(newcomer)
    troupe.happened(f"the join of {newcomer}")
    names.append(newcomer)
    _gather(troupe, names, steps)
    _go_on(troupe, names)

    oldest = names[0]
    say(f"{oldest} is frozen")
    troupe.send(oldest, signal.SIGSTOP)
    troupe.happened(f"the freeze of {oldest}")
    _go_on(troupe, names[1:])
    say(f"{oldest} wakes up")
    troupe.send(oldest, signal.SIGCONT)
    troupe.happened(f"the return of {oldest}")
    _gather(troupe, names, steps)
    _go_on(troupe, names)

    say(f"{oldest} leaves")
    troupe.send(oldest, signal.SIGTERM)
    troupe.happened(f"the leave of {oldest}")
    names.remove(oldest)
    _until_gone(troupe, [oldest], steps)
    _go_on(troupe, names)
    _stop_and_resume(troupe, names, [f"worker-{workers + 1 + index}" for index in range(workers)], steps, say)


def _stop_and_resume(troupe: Troupe, names: Sequence[str], others: Sequence[str], steps: int, say: Say) -> None:
    say("all stop")
    for name in names:
        troupe.send(name, signal.SIGTERM)
    _until_gone(troupe, names, steps)
    troupe.happened(f"the stop of all, and the resume with {len(others)}")
    say(f"{len(others)} others resume")
    troupe.open(steps)
    troupe.start(*others)
    finished(troupe)


def _until_gone(troupe: Troupe, names: Sequence[str], steps: int) -> None:
    """Let the workers make as few steps as possible until these have ended."""

    def gone() -> bool:
        return not {*names} & {*troupe.alive}

    while troupe.gate < steps - BETWEEN and not troupe.wait_for(gone, "the end", seconds=_LOOK_SECONDS):
        troupe.open(troupe.gate + 1)
    troupe.wait_for(gone, f"the end of {', '.join(names)}")


def _go_on(troupe: Troupe, names: Sequence[str]) -> None:
    """Let these workers make some steps, and wait until they are at the gate again."""
    troupe.open(troupe.gate + BETWEEN)
    troupe.wait_for(lambda: troupe.have_begun(names, troupe.gate + 1), f"step {troupe.gate + 1} of {', '.join(names)}")


def _gather(troupe: Troupe, names: Sequence[str], steps: int) -> None:
    """Let the workers make as few steps as possible until all of these train together."""
    for name in names:
        troupe.wait_for(lambda name=name: troupe.is_prepared(name), f"the start of {name}")  # type: ignore[misc]
    while not troupe.wait_for(
        lambda: troupe.have_begun(names, troupe.gate + 1), "all train together", seconds=_LOOK_SECONDS
    ):
        together = [name for name in names if troupe.book.step_of(name) == troupe.gate + 1]
        if together:  # else they are still at the step before
            if troupe.gate >= steps - BETWEEN:
                missing = ", ".join(sorted({*names} - {*together}))
                raise Stuck(f"{missing} did not get to train with {', '.join(together)} in {troupe.gate} steps")
            troupe.open(troupe.gate + 1)
