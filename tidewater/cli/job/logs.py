"""The merged logs of a job's workers, each line behind its worker's name in the worker's colour.

    printed(session, Wanted("digits"))             # what there is, in the order of the lines' times
    followed(session, Wanted("digits", tail=10))   # and what comes, also from workers that come later

Following takes one thread for the job, one for its pods, and one for each log. They put what they find into one
queue; the main thread alone decides and prints.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from rich.text import Text

from tidewater.cli.errors import UsageError
from tidewater.cli.job import waiting
from tidewater.cli.job.changes import RETRY_SECONDS, Snapshot, Watched, named, snapshots, successive
from tidewater.cli.job.describe import pod_state
from tidewater.cli.job.lines import Line, Position, line_of, merged
from tidewater.cli.job.lookup import job_pods, place, pods_of, worker_of
from tidewater.cli.job.printer import Printer
from tidewater.cli.session import Session
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import LogOptions, Object
from tidewater.kube.errors import ApiError, ErrorWithRemedy, Forbidden, LoginFailed, MissingKind, NotFound
from tidewater.kube.kinds import PODS

LAST_SECONDS = 10.0
"""How long to read on after the job has ended: a straggler may run on for ever."""

LATE_SECONDS = 0.2
_WAITING_LINES = 10_000
_AT_ONCE = 1_000
_GAP_SECONDS = 2


@dataclass(frozen=True)
class Wanted:
    """Which logs, and which part of them."""

    job: str
    workers: tuple[str, ...] = ()
    """Pod names or indices of workers; empty: all pods of the job."""
    tail: int | None = None
    since_seconds: int | None = None
    previous: bool = False
    """Of containers that were restarted, the run before."""

    def includes(self, pod: Object) -> bool:
        """Return whether the pod's log is wanted."""
        type, index = worker_of(pod)
        name = str(pod["metadata"]["name"])
        own = {name, name.removeprefix(f"{self.job}-"), f"{type}-{index}"}
        if type == names.WORKER.lower():
            own.add(str(index))
        return not self.workers or not own.isdisjoint(self.workers)


@dataclass(frozen=True)
class Run:
    """One run of a pod's container: the kubelet may restart it."""

    uid: str
    restarts: int


def printed(session: Session, wanted: Wanted, job: Object, printer: Printer) -> None:
    """Print what the logs have, in the order of the lines' times.

    Raises:
        UsageError: there is no such worker.
    """
    pods = job_pods(session.cluster, wanted.job)
    chosen = [pod for pod in pods if wanted.includes(pod)]
    if pods and not chosen:
        known = ", ".join(str(each["metadata"]["name"]) for each in pods)
        raise UsageError(f"--worker {', '.join(wanted.workers)}: {wanted.job} has no such worker", f"It has {known}.")
    if not pods:
        session.note(f"{wanted.job} has no pods: {waiting.summary(job)}")
    for line in merged([_log(session, pod, wanted) for pod in chosen]):
        printer.line(line)
    printer.flush()


def printed_before(session: Session, wanted: Wanted, job: Object, printer: Printer) -> None:
    """Print the runs before of containers that were restarted, and what the pod that failed last printed at its end.

    That pod may be gone: the job's status has its last words.
    """
    pods = [pod for pod in job_pods(session.cluster, wanted.job) if wanted.includes(pod)]
    restarted = [pod for pod in pods if _status(pod).get("restartCount")]
    for line in merged([_log(session, pod, replace(wanted, previous=True)) for pod in restarted]):
        printer.line(line)
    printer.flush()
    failure = str(waiting.status_of(job).get("lastFailure") or "")
    if failure:
        session.out.print(Text(failure), soft_wrap=True)
    elif not restarted:
        session.note(f"no pod of {wanted.job} has failed")


def followed(session: Session, wanted: Wanted, printer: Printer) -> None:
    """Print what the logs have and what comes, until the job has ended or is deleted.

    Raises:
        ClusterError: the cluster refuses; one that only stops answering is asked again.
    """
    Follower(session, wanted, printer).run()


def started(pod: Object) -> Run | None:
    """Return the newest run of the pod's container that has a log; None if it has not started."""
    status = _status(pod)
    if "running" not in (status.get("state") or {}) and not over(pod):
        return None
    return Run(str(pod["metadata"].get("uid", "")), int(status.get("restartCount") or 0))


def over(pod: Object) -> bool:
    """Return whether the newest run has ended. While the container waits for its next start, that is the last one."""
    status = _status(pod)
    state, last = status.get("state") or {}, status.get("lastState") or {}
    return "terminated" in state or ("running" not in state and "terminated" in last)


def _status(pod: Object) -> Object:
    """Return the status of the container that trains; empty if the kubelet has not written one."""
    own = container_of(pod)
    found: list[Object] = (pod.get("status") or {}).get("containerStatuses") or []
    return next((each for each in found if each.get("name") == own), {})


def container_of(pod: Object) -> str:
    """Return the name of the container that trains: the one of that name, else the first."""
    found = [str(each["name"]) for each in pod["spec"]["containers"]]
    return names.WORKER_CONTAINER if names.WORKER_CONTAINER in found else found[0]


def ended(pod: Object) -> bool:
    """Return whether the container that trains has terminated for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _log(session: Session, pod: Object, wanted: Wanted) -> Iterator[Line]:
    """Yield the lines of one pod. A pod that has none, or is gone, is reported on standard error."""
    name = str(pod["metadata"]["name"])
    if started(pod) is None:
        session.note(f"{name} has not started: {pod_state(pod)}")  # the API server would answer with an empty log
        return
    options = LogOptions(
        container=container_of(pod),
        tail=wanted.tail,
        since_seconds=wanted.since_seconds,
        previous=wanted.previous,
        timestamps=True,
    )
    try:
        for raw in session.cluster.log(name, options):
            yield line_of(name, raw)
    except NotFound:
        session.note(f"{name} is gone")
    except Forbidden:
        raise
    except ApiError as error:
        session.note(f"{name}: {error.message}")  # its node does not answer


T = TypeVar("T")
Message = Callable[[], None]


class Follower:
    """Follows the logs of one job. Threads only put messages into the inbox, which the main thread carries out."""

    def __init__(self, session: Session, wanted: Wanted, printer: Printer) -> None:
        self._session = session
        self._wanted = wanted
        self._printer = printer
        self._inbox: queue.Queue[Message] = queue.Queue(_WAITING_LINES)
        self._pods: dict[str, Object] = {}
        self._at_first: frozenset[str] | None = None
        """Pods that were there when following began; None before the first look."""
        self._reading: dict[str, Run] = {}
        self._done: set[Run] = set()
        self._not_before: dict[str, float] = {}
        self._positions: dict[str, Position] = {}
        self._told: dict[str, str] = {}
        self._job_ended = False
        self._last_call = math.inf

    def run(self) -> None:
        """Follow until the job has ended."""
        session, name = self._session, self._wanted.job
        jobs = Watched(JOBS, named(name))
        pods = Watched(PODS, pods_of(name))
        self._begin(lambda: self._tell_all(self._see_job, successive(session.cluster, session.clock, jobs)))
        self._begin(lambda: self._tell_all(self._see_pods, snapshots(session.cluster, session.clock, pods)))
        while not self._finished():
            self._carry_out()
            self._printer.flush()
            self._read_what_is_due()

    def _carry_out(self) -> None:
        """Wait for a message; carry out those that are there."""
        with contextlib.suppress(queue.Empty):
            self._inbox.get(timeout=self._patience())()
            for _ in range(_AT_ONCE):
                self._inbox.get_nowait()()

    def _finished(self) -> bool:
        if not self._job_ended or self._at_first is None:
            return False
        everything_read = not self._reading and not self._unread()
        return everything_read or self._session.clock.monotonic() > self._last_call

    def _patience(self) -> float:
        """Return for how long there is nothing to do but to wait for messages."""
        now = self._session.clock.monotonic()
        times = [self._last_call, *(self._not_before.get(run.uid, now) for _, run in self._unread())]
        return min(60.0, max(0.01, min(times) - now))

    def _see_job(self, job: Object | None) -> None:
        if self._job_ended or (job is not None and waiting.state_of(job) not in waiting.ENDED):
            return
        self._job_ended = True
        self._last_call = self._session.clock.monotonic() + LAST_SECONDS
        self._printer.note(f"{self._wanted.job}: {waiting.summary(job) if job else 'the job has been deleted'}")

    def _see_pods(self, found: Snapshot) -> None:
        chosen = {uid: pod for uid, pod in found.items() if self._wanted.includes(pod)}
        for uid, pod in self._pods.items():
            if uid not in chosen:
                self._printer.note(f"{pod['metadata']['name']} has left")
        for uid, pod in chosen.items():
            if uid not in self._pods and self._at_first is not None:
                self._printer.note(f"{pod['metadata']['name']} has come")
        self._pods = chosen
        if self._at_first is None:
            self._at_first = frozenset(chosen)

    def _unread(self) -> list[tuple[Object, Run]]:
        """Return the pods that have a log to be read which is not being read."""
        found = []
        for uid, pod in self._pods.items():
            run = started(pod)
            if run and uid not in self._reading and run not in self._done:
                found.append((pod, run))
        return sorted(found, key=lambda each: place(each[0]))

    def _read_what_is_due(self) -> None:
        now = self._session.clock.monotonic()
        for pod, run in self._unread():
            if now >= self._not_before.get(run.uid, 0.0):
                self._not_before.pop(run.uid, None)
                self._reading[run.uid] = run
                self._begin(self._reader(pod, run))

    def _reader(self, pod: Object, run: Run) -> Callable[[], None]:
        """Return what a thread does to read one log, from where it was left."""
        name, cluster, whole = str(pod["metadata"]["name"]), self._session.cluster, over(pod)
        options = replace(self._part(run.uid), container=container_of(pod), follow=True, timestamps=True)
        position = self._positions.setdefault(run.uid, Position())
        position.again()

        def read() -> None:
            error: ErrorWithRemedy | None = None
            replaced = False
            try:
                # The API server finds logs by name, and the news that another pod has this name may be late.
                there = {str(each["metadata"].get("uid", "")) for each in cluster.list(PODS, named(name)).items}
                replaced = run.uid not in there
                for raw in () if replaced else cluster.log(name, options):
                    line = line_of(name, raw)
                    if position.admits(line):
                        self._inbox.put(partial(self._printer.line, line))
            except ErrorWithRemedy as found:
                error = found
            self._inbox.put(partial(self._end, run, error, whole=whole or replaced))

        return read

    def _part(self, uid: str) -> LogOptions:
        """Return which part of a log to read: from where it was left, or from where the user wants it to begin."""
        position, wanted = self._positions.get(uid), self._wanted
        if position and position.since:
            return LogOptions(since_time=position.since)
        if uid not in (self._at_first or ()):
            return LogOptions()  # of a pod that came later, every line is new
        if position is None:
            return LogOptions(tail=wanted.tail, since_seconds=wanted.since_seconds)
        # Nothing has been read, so nothing is repeated; only `--tail 0` has left out lines.
        return LogOptions(since_seconds=_GAP_SECONDS if wanted.tail == 0 else wanted.since_seconds)

    def _end(self, run: Run, error: ErrorWithRemedy | None, *, whole: bool) -> None:
        """Decide what the end of a stream means: the container has ended, or the connection has.

        Args:
            whole: The run had ended before the stream began, so that a stream that ends well has all of its log; or the
                pod is gone.
        """
        del self._reading[run.uid]
        if isinstance(error, Forbidden | LoginFailed | MissingKind):
            raise error
        pod = self._pods.get(run.uid)
        gone = pod is None or isinstance(error, NotFound)
        if gone or (pod and error is None and (whole or ended(pod) or started(pod) != run)):
            self._done.add(run)
            return
        # A stream that ends well was cut off by the API server, or the pod's status is late.
        pause = RETRY_SECONDS if error else LATE_SECONDS
        self._not_before[run.uid] = self._session.clock.monotonic() + pause
        if pod and error and self._told.get(run.uid) != error.message:
            self._told[run.uid] = error.message
            self._printer.note(f"{pod['metadata']['name']}: {error.message}")

    def _tell_all(self, see: Callable[[T], None], found: Iterable[T]) -> None:
        try:
            for each in found:
                self._inbox.put(partial(see, each))
        except ErrorWithRemedy as error:
            self._inbox.put(partial(_fail, error))

    def _begin(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()


def _fail(error: ErrorWithRemedy) -> None:
    raise error
