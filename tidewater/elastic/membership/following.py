"""Follows a job's records in etcd: reads all of them once, then their changes.

    follower = Follower(store, "digits", decides=lambda: True, update=apply, away=lasting)
    follower.run(clock)                       # in a thread, until stop()
    follower.again()                          # read everything again

In a large job only those that decide read the votes (see ``deciders``). The others end and begin their watch again when
many changes come shortly after one another: etcd sends each change on its own to a watch that is open, which costs it
and each member more than the change itself, and all changes since a revision together to one that begins.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

from tidewater.contract import keys
from tidewater.elastic.errors import Compacted, StoreError
from tidewater.elastic.etcd.client import Store, Watch
from tidewater.elastic.membership import records
from tidewater.elastic.membership.rules import View
from tidewater.elastic.observe.log import Lasting

_RETRY_SECONDS = 0.3
_MEMBERS_WITHOUT_REST, _REST_SECONDS_OF_EACH = 32, 1e-4
_STORM_SECONDS = 2.0
"""Changes that come sooner after one another are many."""
_PAUSE_SECONDS_OF_EACH, _LONGEST_PAUSE_SECONDS = 3e-3, 3.0
"""Between two watches, for each member above those without a rest."""

Update = Callable[[Callable[[View], View], bool], int]
"""Applies a change to the view. The flag says that all records have been read. Returns the number of members."""


class Follower:
    """One process's reader.

    Args:
        store: etcd.
        job: The job's name.
        decides: Returns whether this process must read the votes now. Asked after each change, so it must be quick.
        update: See ``Update``.
        away: Where to say that etcd doesn't answer.
    """

    def __init__(self, store: Store, job: str, *, decides: Callable[[], bool], update: Update, away: Lasting) -> None:
        self._store, self._job, self._decides, self._update, self._away = store, job, decides, update, away
        self._watch: Watch | None = None
        self._stopping = self._again = False
        self._number = 0
        """Of members, after the last change."""
        self.complete = False
        """Whether the view has the votes, so that this process may decide."""
        self.read_at = -math.inf
        """When (by the clock of ``run``) everything was read last."""

    def run(self, clock: Callable[[], float]) -> None:
        """Follow until ``stop``. Raise RecordError for a record that this version of the code can't work with."""
        while not self._stopping:
            try:
                self._again = False
                asked_at, decides = clock(), self._decides()
                snapshot = self._store.read(keys.job(self._job), until=self._until(decides))
                self._number = self._update(partial(records.replaced, snapshot.entries), True)
                self.complete, self.read_at = decides, asked_at
                self._update(lambda view: view, False)  # what waits for either looks again
                self._watch_from(snapshot.revision + 1)
            except StoreError as error:
                self._away.say(error=str(error))
                time.sleep(_RETRY_SECONDS)

    def again(self) -> None:
        """Read everything again, soon."""
        self._again = True
        self.look()

    def look(self) -> None:
        """Ask soon whether this process decides."""
        if self._watch:
            self._watch.close()

    def stop(self) -> None:
        """End ``run``, soon."""
        self._stopping = True
        self.look()

    def _until(self, decides: bool) -> str:
        return "" if decides else keys.votes(self._job)

    def _watch_from(self, revision: int) -> None:
        """Follow the changes until everything must be read again. Raise StoreError when the connection breaks."""
        changed_at = -math.inf
        while not (self._stopping or self._again):
            decides = self._decides()
            if decides and not self.complete:
                return
            self.complete = decides
            self._watch = self._store.watch(keys.job(self._job), revision, until=self._until(decides))
            try:
                for events in self._watch:
                    for group in records.grouped(events):
                        self._number = self._update(partial(records.applied, group), False)
                        revision = max([revision, *(event.revision + 1 for event in group)])
                    many, changed_at = time.monotonic() < changed_at + _STORM_SECONDS, time.monotonic()
                    if self._again or self._decides() != decides or not self._rest(many=many):
                        break
            except Compacted:
                return
            finally:
                self._watch.close()

    def _rest(self, *, many: bool) -> bool:
        """Let changes come together in a large job, for one view of them all: a view takes time for each member.

        A change that comes after a quiet moment is not delayed; others by 3 ms with 64 members, 0.1 s with 1,000, and
        for one that doesn't decide by as much as a second. Return whether the watch goes on.
        """
        over = self._number - _MEMBERS_WITHOUT_REST
        if over <= 0:
            return True
        if self.complete or not many:
            time.sleep(over * _REST_SECONDS_OF_EACH)
            return True
        if self._watch:
            self._watch.close()
        time.sleep(min(over * _PAUSE_SECONDS_OF_EACH, _LONGEST_PAUSE_SECONDS))
        return False
