"""A thread reports the versions of server 0 to the master: updates don't wait for the master, and it may be away.

reporter = Reporter(lambda version: stub.ReportVersion(pb.VersionReport(version=version), timeout=10), say=log)
reporter.start()
reporter.report(17)            # returns at once
reporter.stop()

Only the newest version counts. If several are made while the master answers, only the last of them is reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import grpc

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0


class Reporter:
    """Reports the newest version, and repeats it until the master has answered."""

    def __init__(self, tell: Callable[[int], object], *, say: Callable[[str], None]) -> None:
        self._tell, self._say = tell, say
        self._newest: int | None = None
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="report-version", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def report(self, version: int) -> None:
        """Have a version reported, unless a newer one is already waiting."""
        with self._changed:
            self._newest = version if self._newest is None else max(version, self._newest)
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread. It is safe to call this twice."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        away, pause = False, FIRST_PAUSE_SECONDS
        while (version := self._next()) is not None:
            try:
                self._tell(version)
            except grpc.RpcError as error:
                if not away:
                    self._say(f"the master can't be told version {version} ({error.code().name}); updates go on")
                away = True
                self._put_back(version, pause)
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
            else:
                if away:
                    self._say(f"the master is back; it knows version {version}")
                away, pause = False, FIRST_PAUSE_SECONDS

    def _next(self) -> int | None:
        """Wait for a version; return None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._newest is not None)
            version, self._newest = self._newest, None
            return None if self._ending else version

    def _put_back(self, version: int, pause: float) -> None:
        with self._changed:
            self._newest = version if self._newest is None else max(version, self._newest)
            self._changed.wait_for(lambda: self._ending, timeout=pause)
