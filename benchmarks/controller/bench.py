"""Makes the turns of a run on one API server, and records the values of each as soon as it is over."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.controller import results
from benchmarks.controller.errors import TurnFailed
from benchmarks.controller.plan import Pace, Turn
from benchmarks.controller.plane import Plane
from benchmarks.controller.systems import System, systems
from benchmarks.controller.turn import TurnRun
from benchmarks.records import Records


class Bench:
    """One API server, on which controllers run one at a time."""

    def __init__(self, folder: Path, records: Records, pace: Pace) -> None:
        self._folder, self._records, self._pace = folder, records, pace
        self._begin = time.monotonic()

    def run(self, turns: Sequence[Turn]) -> list[str]:
        """Make the turns. Return what is said of those that failed; they are left out."""
        failed = []
        expected = spent = 0.0
        total = sum(turn.seconds(self._pace) for turn in turns)
        with self._opened({turn.system for turn in turns}) as (plane, chosen):
            for number, turn in enumerate(turns):
                left = (spent / expected if expected else 1.0) * (total - expected) / 60
                self._say(f"{number + 1} of {len(turns)}: {turn.jobs} jobs, {turn.system}; {left:.0f} min left")
                begin = time.monotonic()
                try:
                    self._one(plane, chosen[turn.system], turn)
                except TurnFailed as error:
                    failed.append(f"turn {turn.number + 1} of {turn.system} with {turn.jobs} jobs: {error}")
                    self._say(f"{failed[-1]}\nthis turn is left out")
                expected, spent = expected + turn.seconds(self._pace), spent + time.monotonic() - begin
        return failed

    def _one(self, plane: Plane, system: System, turn: Turn) -> None:
        folder = self._folder / f"{turn.jobs}-{turn.number}-{system.name.replace(' ', '-')}"
        folder.mkdir()
        found = TurnRun(plane, system, turn, self._pace, folder).run()
        for name, value in found.items():
            self._records.add(name, system.name, [value], unit=results.unit(name))
        shown = (results.RATE, results.CALLS, results.PSS, results.RESIZE_P50, results.RESIZE_P99, results.REST_CALLS)
        names = [results.named(turn.jobs, measure) for measure in shown]
        figures = [f"{found[name]:.2f} {results.unit(name)}" for name in names if name in found]
        self._say(f"{system.name}: {', '.join(figures)}")

    @contextlib.contextmanager
    def _opened(self, names: set[str]) -> Iterator[tuple[Plane, dict[str, System]]]:
        """Provide a control plane on which the controllers of these systems are installed."""
        chosen = {name: system for name, system in systems().items() if name in names}
        # Two systems may be one installation.
        controllers = {id(system.controller): system.controller for system in chosen.values()}.values()
        plane = Plane(self._folder, sorted({controller.user for controller in controllers}))
        with contextlib.ExitStack() as stack:
            stack.callback(plane.end)
            plane.start()
            for controller in controllers:
                stack.callback(controller.end)
                controller.install(plane)
            self._say("the API server is ready")
            yield plane, chosen

    def _say(self, text: str) -> None:
        """Print one line of progress."""
        print(f"[{time.monotonic() - self._begin:6.0f} s] {text}", flush=True)
