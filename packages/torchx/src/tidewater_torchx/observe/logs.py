"""The log of one replica: what there is, or that and what comes until the application has ended.

    for line in written(cluster, Wanted("training", "app-kx3p", "Worker", 0)): ...
    for line in Follower(cluster, wanted, ended).lines(): ...

A replica's pod may be replaced while its log is followed, and the stream may break off. One thread watches the job and
one reads each pod's log; they put what they find into one queue, and the thread that takes the lines decides.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from tidewater.cli.job.lines import Line, Position, line_of
from tidewater.contract import labels
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Cluster, LogOptions, Object, Selection
from tidewater.kube.errors import (
    ApiError,
    ClusterError,
    Forbidden,
    Gone,
    LoginFailed,
    NotFound,
    Unavailable,
    Unreachable,
)
from tidewater.kube.kinds import PODS
from tidewater_torchx.observe.states import replicas

WATCH_SECONDS = 60.0
RETRY_SECONDS = 1.0
LATE_SECONDS = 0.2
"""The end of a stream may be known before the end of its container."""

LOOK_SECONDS = 10.0
"""The pod is looked at again after this time, even if nothing is heard of the job."""

LAST_SECONDS = 10.0
"""How long to read on after the application has ended, without a line: a pod on a lost node never ends its stream, and
a straggler may run on."""


@dataclass(frozen=True)
class Wanted:
    """Which log: of a replica of a job, from a time on."""

    namespace: str
    job: str
    type: str
    replica: int
    since: datetime | None = None

    @property
    def options(self) -> LogOptions:
        """Return how to ask for it. The API server takes the time in whole seconds."""
        if self.since is None:
            return LogOptions(timestamps=True)
        return LogOptions(timestamps=True, since_time=self.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def admits(self, line: Line) -> bool:
        """Return whether the line is late enough."""
        if self.since is None or not line.stamp:
            return True
        since = self.since.astimezone(UTC)
        return line.moment >= (since.replace(microsecond=0), since.microsecond * 1000)


@dataclass(frozen=True)
class Run:
    """One run of a container: its pod, the container, and how many times it was restarted."""

    uid: str
    pod: str
    container: str
    restarts: int


def pod_of(cluster: Cluster, wanted: Wanted) -> Object | None:
    """Return the replica's pod; None if there is none now."""
    selector = labels.selector(names.type_labels(wanted.job, wanted.type))
    found = cluster.list(PODS, Selection(wanted.namespace, labels=selector)).items
    return dict(replicas(found, wanted.type)).get(wanted.replica)


def run_of(pod: Object) -> Run | None:
    """Return the newest run that has a log: of the container that trains, else of one before it that failed."""
    status = pod.get("status") or {}
    statuses = {str(each["name"]): each for each in status.get("containerStatuses") or ()}
    every = [str(each["name"]) for each in pod["spec"]["containers"]]
    own = names.WORKER_CONTAINER if names.WORKER_CONTAINER in every else every[0]
    candidates = [statuses[own]] if own in statuses else []
    candidates += [each for each in status.get("initContainerStatuses") or () if _exit_code(each)]
    for each in candidates:
        state, last = each.get("state") or {}, each.get("lastState") or {}
        if "running" in state or "terminated" in state or "terminated" in last:
            uid = str(pod["metadata"].get("uid", ""))
            return Run(uid, str(pod["metadata"]["name"]), str(each["name"]), int(each.get("restartCount") or 0))
    return None


def is_over(pod: Object, run: Run) -> bool:
    """Return whether the run has ended, as far as its pod says."""
    status = pod.get("status") or {}
    if str(pod["metadata"].get("uid", "")) != run.uid or status.get("phase") in ("Succeeded", "Failed"):
        return True
    newest = run_of(pod)
    if newest is None or newest != run:
        return True
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return any(each["name"] == run.container and "running" not in (each.get("state") or {}) for each in every)


def written(cluster: Cluster, wanted: Wanted) -> Iterator[str]:
    """Yield the lines that there are, without their ends; none if the replica has no pod, or has not started."""
    pod = pod_of(cluster, wanted)
    run = run_of(pod) if pod is not None else None
    if run is None:
        return
    with contextlib.suppress(NotFound):
        for raw in cluster.log(run.pod, replace(wanted.options, container=run.container), wanted.namespace):
            line = line_of(run.pod, raw)
            if wanted.admits(line):
                yield line.text


def _exit_code(container: Object) -> int:
    return int(((container.get("state") or {}).get("terminated") or {}).get("exitCode") or 0)


@dataclass
class _Reading:
    """A run. Its log is being read, or has been read up to a position."""

    position: Position = field(default_factory=Position)
    active: bool = False
    done: bool = False
    not_before: float = 0.0


class Follower:
    """Follows the log of one replica, over all of its pods, until the application has ended.

    Args:
        cluster: where it runs.
        wanted: which replica.
        ended: whether the application has ended, by its job; None is a job that was deleted.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        cluster: Cluster,
        wanted: Wanted,
        ended: Callable[[Object | None], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._wanted = wanted
        self._ended = ended
        self._inbox: queue.Queue[Callable[[], str | None]] = queue.Queue(maxsize=1000)
        self._stop = threading.Event()
        self._runs: dict[Run, _Reading] = {}
        self._pod: Object | None = None
        self._heard = 0.0
        self._last_call: float | None = None

    def lines(self) -> Iterator[str]:
        """Yield the lines, without their ends.

        Raises:
            ClusterError: the API server refuses this user, or can't be reached at all.
        """
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            while not self._finished():
                with contextlib.suppress(queue.Empty):
                    line = self._inbox.get(timeout=self._patience())()
                    if line is not None:
                        self._heard = self._clock()
                        yield line
                    continue
                self._look()
        finally:
            self._stop.set()

    def _finished(self) -> bool:
        if self._last_call is None:
            return False
        unread = [run for run, each in self._runs.items() if not each.done]
        now = self._clock()
        if not unread or now <= self._last_call:
            return not unread
        if self._heard >= self._last_call - LAST_SECONDS and any(map(self._is_over, unread)):
            self._last_call = now + LAST_SECONDS  # a long log of a pod that has ended
        return now > self._last_call

    def _patience(self) -> float:
        """Return for how long there is nothing to do but to wait for the threads."""
        now = self._clock()
        due = [each.not_before for each in self._runs.values() if not each.active and not each.done]
        if self._last_call is not None:
            due.append(self._last_call)
        return max(0.0, min([now + LOOK_SECONDS, *due]) - now)

    def _see_job(self, job: Object | None) -> None:
        # The pod is looked at first, so that a run which the end of the job follows at once is not left out.
        ended = self._ended(job)
        self._look()
        if ended and self._last_call is None:
            self._last_call = self._clock() + LAST_SECONDS

    def _look(self) -> None:
        """Look at the replica's pod, and read what is due."""
        try:
            self._pod = pod_of(self._cluster, self._wanted)
        except Unavailable:  # an API server that is restarted or overloaded refuses everyone, and may answer soon
            return
        run = run_of(self._pod) if self._pod is not None else None
        if run is not None:
            self._runs.setdefault(run, _Reading())
        now = self._clock()
        for known, reading in list(self._runs.items()):
            gone = self._pod is None or known.uid != str(self._pod["metadata"].get("uid", ""))
            if gone and not reading.active:
                reading.done = True
            if not reading.active and not reading.done and now >= reading.not_before:
                reading.active = True
                threading.Thread(target=self._read, args=(known, reading), daemon=True).start()

    def _read(self, run: Run, reading: _Reading) -> None:
        """Read one log, from where it was left. Runs in a thread of its own."""
        reading.position.again()
        since = reading.position.since or self._wanted.options.since_time
        options = LogOptions(container=run.container, follow=True, timestamps=True, since_time=since)
        error: ClusterError | None = None
        try:
            for raw in self._cluster.log(run.pod, options, self._wanted.namespace):
                line = line_of(run.pod, raw)
                if reading.position.admits(line) and self._wanted.admits(line):
                    self._put(lambda text=line.text: text)  # type: ignore[misc]
                if self._stop.is_set():
                    return
        except ClusterError as found:
            error = found
        self._put(lambda: self._end(run, reading, error))

    def _end(self, run: Run, reading: _Reading, error: ClusterError | None) -> None:
        """Decide what the end of a stream means: the container has ended, or the connection has."""
        reading.active = False
        if isinstance(error, NotFound):
            reading.done = True
        elif isinstance(error, Forbidden | LoginFailed):
            raise error
        elif error is None and self._is_over(run):
            reading.done = True
        else:
            reading.not_before = self._clock() + (RETRY_SECONDS if error else LATE_SECONDS)

    def _is_over(self, run: Run) -> bool:
        try:
            self._pod = pod_of(self._cluster, self._wanted)
        except (Unreachable, ApiError):
            return False
        return self._pod is None or is_over(self._pod, run)

    def _watch(self) -> None:
        """Tell of the job now and after each of its changes. Runs in a thread of its own."""
        selection = Selection(self._wanted.namespace, fields=f"metadata.name={self._wanted.job}")
        begun = False
        while not self._stop.is_set():
            try:
                listing = self._cluster.list(JOBS, selection)
                begun = True
                self._tell(next(iter(listing.items), None))
                version = listing.version
                while not self._stop.is_set():
                    for change in self._cluster.watch(JOBS, selection, version, WATCH_SECONDS):
                        version = str(change.object["metadata"].get("resourceVersion", version))
                        deleted = change.type == "DELETED"
                        self._tell(None if deleted else change.object)
                        if deleted or self._stop.is_set():
                            return
            except Gone:
                continue
            except ClusterError as error:
                if not begun or not isinstance(error, Unavailable):
                    self._put(lambda error=error: _fail(error))  # type: ignore[misc]
                    return
                self._stop.wait(RETRY_SECONDS)

    def _tell(self, job: Object | None) -> None:
        self._put(lambda: self._see_job(job))

    def _put(self, message: Callable[[], str | None]) -> None:
        """Put a message into the inbox, unless the reader has stopped."""
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._inbox.put(message, timeout=RETRY_SECONDS)
                return


def _fail(error: ClusterError) -> str | None:
    raise error
