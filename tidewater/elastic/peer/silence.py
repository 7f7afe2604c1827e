"""Says which worker a job waits for that makes no step.

    silence = Silence(Place(member_id, view, least), 60.0, log, metrics, Asks(waits=session.waits, of=ask_waits))
    silence.start()                                     # looks once a second
    server.waits = session.waits                        # answers the peers that ask

A worker *waits* if it has done its part of a sum, or meets the others; otherwise the others wait for it, whether it
reads samples, computes, or hangs. A peer answers in a thread of its own, so it says that also while it hangs. A worker
that the others wait for says so itself, in its log and metrics. In addition, rank 0 asks all others, and names those
that don't wait or don't answer. So the number of messages grows with the workers, and not with their square.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from tidewater.elastic.membership.rules import Seat, View
from tidewater.elastic.observe.log import Lasting, Log
from tidewater.elastic.observe.metrics import Metrics

_LOOK_SECONDS = 1.0
_MOST_NAMES = 8
"""Workers that are named."""


@dataclass(frozen=True)
class Place:
    """Where this worker stands in the job."""

    member_id: str
    view: Callable[[], View]
    least: int
    """With fewer members no step is made; the log says so elsewhere."""

    def members(self) -> tuple[int, Sequence[Seat]]:
        """Return this worker's rank and the members that should make steps together; none if it isn't one of them."""
        view = self.view()
        generation = view.generation
        rank = generation.rank(self.member_id) if generation else None
        if generation is None or rank is None or view.finished or len(generation.members) < self.least:
            return -1, ()
        return rank, generation.members


@dataclass(frozen=True)
class Asks:
    """How to find out who waits."""

    waits: Callable[[], bool]
    """Returns whether this worker does."""
    of: Callable[[Seat], bool | None]
    """Returns whether another worker does; None if it doesn't answer."""


class Silence:
    """Watches whether the job makes steps, in a thread of its own.

    Args:
        place: This worker's.
        seconds: Without a step or a round of an evaluation, after which the job is silent.
        log: Where to say it, at growing intervals.
        metrics: Where to say it, and how this worker's progress is known.
        asks: How to find out who waits.
        clock: Returns monotonic time in seconds.
    """

    def __init__(
        self,
        place: Place,
        seconds: float,
        log: Log,
        metrics: Metrics,
        asks: Asks,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place, self._seconds, self._metrics, self._asks = place, seconds, metrics, asks
        self._clock = clock
        self._line = Lasting(log, "silent", clock=clock)
        self._since = clock()
        """When this worker became a member."""
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="silence", daemon=True).start()

    def stop(self) -> None:
        """End the thread. Safe to call twice."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Say which worker the job waits for, if it is silent."""
        now = self._clock()
        found = rank, members = self._place.members()
        if not members:
            self._since = now
        progressed_at = self._metrics.progressed_at
        silent = now - max(self._since, progressed_at)
        if silent < self._seconds or not members:
            self._metrics.silent(0.0, ())
            return

        def lasts() -> bool:
            return self._place.members() == found and self._metrics.progressed_at == progressed_at

        names = self._waited_for(rank, members, lasts)
        if not lasts():
            return
        self._metrics.silent(silent, names)
        if names:
            more = [f"{len(names) - _MOST_NAMES} others"] if len(names) > _MOST_NAMES else []
            self._line.say(seconds=round(silent, 1), waits_for=", ".join([*names[:_MOST_NAMES], *more]))

    def _waited_for(self, rank: int, members: Sequence[Seat], lasts: Callable[[], bool]) -> list[str]:
        """Return the workers that the others wait for, as far as this one has to know them.

        Not all of them if ``lasts`` says that the silence is over: one that doesn't answer takes seconds.
        """
        mine = [] if self._asks.waits() else [members[rank].worker]
        others = [each for each in members if each is not members[rank]] if rank == 0 else []
        return mine + [each.worker for each in takewhile(lambda _: lasts(), others) if not self._asks.of(each)]
