"""Records the run that the guide's report shows: three workers; one is killed, one leaves, one is started again.

    python -m benchmarks.recording              # about two minutes on a quiet machine with two cores
    python -m benchmarks.tables --write         # then: the summary of the new log, into the guide

Each phase lasts STEPS_PER_PHASE steps, so that the throughput at each world size is of many steps. Run it on a machine
that does nothing else: the seconds of a change contain the first step after it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts import toolchain
from tests.elastic.workers import Program, free_port, run_etcd
from tidewater.contract import exit_codes
from tidewater.elastic import main as trainer_main

RECORDED = Path(__file__).resolve().parents[1] / "tests" / "elastic" / "observe" / "recorded.log"
JOB = "digits"
STEPS_PER_PHASE = 600
EPOCHS = 200
"""Of 23 steps: more than all phases together need."""
REPORT_EVERY = 25
SECONDS = 600.0
"""Limit for each phase."""


class Recording:
    """The job, and the logs of its processes in the order of their starts."""

    def __init__(self, folder: Path, etcd: str) -> None:
        self._folder = folder
        self._arguments = [
            *("--job", JOB, "--etcd", etcd, "--host", "127.0.0.1", "--data", str(folder / JOB)),
            *("--checkpoints", str(folder / "checkpoints" / JOB)),
            *("--epochs", str(EPOCHS), "--report-every", str(REPORT_EVERY)),
        ]
        self.processes: list[Program] = []

    def start(self, name: str) -> Program:
        """Start a worker."""
        log = self._folder / f"{len(self.processes)}-{name}.log"
        process = Program(name, self._arguments, log, ("-m", "trainer.train"))
        self.processes.append(process)
        return process

    def text(self) -> str:
        """Return all logs as `kubectl logs --prefix` shows them, with a cluster's paths."""
        return "".join(
            f"[pod/{process.name}/worker] {line}\n"
            for process in self.processes
            for line in process.text().replace(str(self._folder), "/data").splitlines()
        )

    def end(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            if process.poll() is None:
                process.signal(signal.SIGKILL)
                process.wait()


def step_of(process: Program) -> int:
    """Return the last step that a worker has logged."""
    steps = process.steps()
    return int(steps[-1]["step"]) if steps else 0


def phase(process: Program, world: int, what: str) -> None:
    """Wait until `world` workers have made the steps of a phase together."""
    process.wait_for_world(world, SECONDS)
    until = step_of(process) + STEPS_PER_PHASE
    process.wait_for(lambda worker: step_of(worker) >= until, SECONDS)
    print(f"step {step_of(process)}: {what}", flush=True)


def record(recording: Recording) -> None:
    """Run the job from its start to its end."""
    survivor, killed = recording.start(f"{JOB}-0"), recording.start(f"{JOB}-1")
    phase(survivor, 2, f"{JOB}-2 starts")
    leaver = recording.start(f"{JOB}-2")
    phase(survivor, 3, f"{JOB}-1 is killed")
    killed.signal(signal.SIGKILL)
    phase(survivor, 2, f"{JOB}-2 is asked to leave")
    leaver.signal(signal.SIGTERM)
    phase(survivor, 1, f"{JOB}-1 starts again")
    recording.start(f"{JOB}-1")
    phase(survivor, 2, "they train to the end")
    if survivor.wait(SECONDS) != exit_codes.FINISHED:
        raise SystemExit(f"{survivor.name} has not finished:\n{survivor.text()[-2000:]}")
    recording.processes[-1].wait(SECONDS)


@contextlib.contextmanager
def etcd(folder: Path) -> Iterator[str]:
    """Provide an etcd. Yield its URL."""
    yield from run_etcd(toolchain.binary("etcd"), folder, free_port())


def main() -> int:
    """Record, and replace the committed log."""
    with tempfile.TemporaryDirectory(prefix="recording-") as temporary, etcd(Path(temporary)) as url:
        folder = Path(temporary)
        if trainer_main.main(["dataset", "--name", JOB, "--out", str(folder / JOB)]):
            return 1
        recording = Recording(folder, url)
        try:
            record(recording)
        finally:
            recording.end()
        RECORDED.write_text(recording.text())
    print(f"recorded in {RECORDED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
