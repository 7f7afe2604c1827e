"""The runs of a rehearsal: undisturbed ones, and one to which everything happens.

    undisturbed(trial, ["worker-0", "worker-1"], steps=36)
    disturbed(trial, workers=2, steps=36, say=print)

The disturbed run waits at the gate before each fault, so it happens at a step and not at a time:

    all train · one is killed · one joins · the oldest is frozen, and returns · it leaves · all stop, others resume
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence

from tidewater.cli.rehearse.trial import Stuck, Trial
from tidewater.contract.exit_codes import FINISHED

BETWEEN = 2
"""Steps between two faults."""
LEAST_STEPS = 30
_LOOK_SECONDS = 0.3
"""How long the first step may take, until the next one is let begin while a newcomer is waited for."""
_LONGEST_LOOK_SECONDS = 20.0

Say = Callable[[str], None]


def undisturbed(trial: Trial, workers: Sequence[str], steps: int) -> None:
    """Start a run that nothing disturbs: it needs all of these workers. Wait with ``finished``."""
    trial.open(steps)
    trial.start(*workers)


def finished(trial: Trial) -> None:
    """Wait until all workers have ended because the job is finished. Raise Failure."""
    trial.wait_for(lambda: not trial.alive, "the end of the job")
    if FINISHED not in trial.codes.values():
        raise Stuck("no worker has finished the job")


def disturbed(trial: Trial, workers: int, steps: int, say: Say) -> None:
    """Make the run with all faults. Raise Failure."""
    names = [f"worker-{index}" for index in range(workers)]
    trial.start(*names)
    _gather(trial, names, steps)
    _go_on(trial, names)
    lost = names.pop()
    say(f"{lost} is killed")
    trial.send(lost, signal.SIGKILL)
    trial.happened(f"the kill of {lost}")
    _go_on(trial, names)

    newcomer = f"worker-{workers}"
    say(f"{newcomer} joins")
    trial.start(newcomer)
    trial.happened(f"the join of {newcomer}")
    names.append(newcomer)
    _gather(trial, names, steps)
    _go_on(trial, names)

    oldest = names[0]
    say(f"{oldest} is frozen")
    trial.send(oldest, signal.SIGSTOP)
    trial.happened(f"the freeze of {oldest}")
    _go_on(trial, names[1:])
    say(f"{oldest} wakes up")
    trial.send(oldest, signal.SIGCONT)
    trial.happened(f"the return of {oldest}")
    _gather(trial, names, steps)
    _go_on(trial, names)

    say(f"{oldest} leaves")
    trial.send(oldest, signal.SIGTERM)
    trial.happened(f"the leave of {oldest}")
    names.remove(oldest)
    _until_gone(trial, [oldest], steps)
    _go_on(trial, names)
    _stop_and_resume(trial, names, [f"worker-{workers + 1 + index}" for index in range(workers)], steps, say)


def _stop_and_resume(trial: Trial, names: Sequence[str], others: Sequence[str], steps: int, say: Say) -> None:
    say("all stop")
    for name in names:
        trial.send(name, signal.SIGTERM)
    _until_gone(trial, names, steps)
    trial.happened(f"the stop of all, and the resume with {len(others)}")
    say(f"{len(others)} others resume")
    trial.open(steps)
    trial.start(*others)
    finished(trial)


def _until_gone(trial: Trial, names: Sequence[str], steps: int) -> None:
    """Let the workers make as few steps as possible until these have ended."""

    def gone() -> bool:
        return not {*names} & {*trial.alive}

    looks = _looks()
    while trial.gate < steps - BETWEEN and not trial.wait_for(gone, "the end", seconds=next(looks)):
        trial.open(trial.gate + 1)
    trial.wait_for(gone, f"the end of {', '.join(names)}")


def _go_on(trial: Trial, names: Sequence[str]) -> None:
    """Let these workers make some steps, and wait until they are at the gate again."""
    trial.open(trial.gate + BETWEEN)
    trial.wait_for(lambda: trial.have_begun(names, trial.gate + 1), f"step {trial.gate + 1} of {', '.join(names)}")


def _gather(trial: Trial, names: Sequence[str], steps: int) -> None:
    """Let the workers make as few steps as possible until all of these train together."""
    for name in names:
        trial.wait_for(lambda name=name: trial.is_prepared(name), f"the start of {name}")  # type: ignore[misc]
    looks = _looks()
    seconds = next(looks)
    while not trial.wait_for(lambda: trial.have_begun(names, trial.gate + 1), "all train together", seconds=seconds):
        together = [name for name in names if trial.records.step_of(name) == trial.gate + 1]
        if together:  # else they are still at the step before
            if trial.gate >= steps - BETWEEN:
                missing = ", ".join(sorted({*names} - {*together}))
                raise Stuck(f"{missing} did not get to train with {', '.join(together)} in {trial.gate} steps")
            trial.open(trial.gate + 1)
            seconds = next(looks)


def _looks() -> Iterator[float]:
    """Yield how long each step may take: longer and longer, since on a busy machine a worker needs seconds to join."""
    seconds = _LOOK_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST_LOOK_SECONDS)
