"""One turn: a controller is started, gets its jobs, some of them are resized, it rests, and everything is deleted.

found = TurnRun(plane, system, 1000, Pace(), folder).run()      # values by the names of `results`

The controller is running and waits for jobs when the first is submitted, so its start is not measured.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import signal
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcloud.kube.errors import ApiError

from benchmarks.controller import jobs, results
from benchmarks.controller.plan import REST_FROM, Pace
from benchmarks.controller.systems import System
from benchmarks.controller.watch import PodWatch
from benchmarks.harness.command import TurnFailed
from tests.control_plane import Plane
from tests.processes import Process, cpu_seconds

SUBMITTERS = 4
START_SECONDS = 90.0
"""Until a controller has made the pod of a first job, its leader election and webhooks included."""
CREATE_SECONDS, CREATE_SECONDS_EACH = 120.0, 2.0
"""Until all pods exist: in all, and for each job."""
RESIZE_SECONDS = 60.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.25
PAGE = 500
"""Objects that one request deletes: it must end within the client's time-out."""
INTERNAL_ERROR = 500
MERGE_PATCH = "application/merge-patch+json"
CALLS_SHOWN = 0.005
"""Kinds of calls that are rarer than this for each job are not listed: a controller's start, a renewal."""
_FIELD = re.compile(r"^(Rss|Pss): +(\d+) kB$", re.MULTILINE)
_KIB_PER_MIB = 1024
WATCH = "watch"
LEASES = "leases"
OTHER = "other paths"
"""In place of a resource, for discovery and the like."""


class TurnRun:
    """The turn of one system. Its namespaces are its own and empty again afterwards."""

    def __init__(self, plane: Plane, system: System, jobs: int, pace: Pace, folder: Path) -> None:
        self._plane, self._system, self._jobs, self._pace, self._folder = plane, system, jobs, pace, folder
        unique = f"{jobs}-{time.monotonic_ns()}"
        self._namespace, self._probe = f"turn-{unique}", f"probe-{unique}"
        self._process: Process | None = None

    def run(self) -> dict[str, float]:
        """Return the values of all measures.

        Raises:
            TurnFailed: The controller ended, or didn't do in time what it should.
        """
        for namespace in (self._namespace, self._probe):
            self._make_namespace(namespace)
        try:
            self._process = self._system.controller.start(self._plane, self._folder, self._system.flags)
            self._wait_until_it_works()
            return self._measure()
        finally:
            self._stop()
            for namespace in (self._namespace, self._probe):
                self._clean(namespace)

    def _measure(self) -> dict[str, float]:
        """Return the values of what is measured once the controller works."""
        with PodWatch(self._plane, self._namespace) as watch:
            found = self._create(watch)
            found |= self._resize(watch)
        if self._jobs >= REST_FROM:
            found |= self._rest()
        return {results.named(self._jobs, measure): value for measure, value in found.items()}

    def _make_namespace(self, namespace: str) -> None:
        client = self._plane.client
        client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        # There is no controller manager that makes this account, and no pod is admitted without it.
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)

    def _wait_until_it_works(self) -> None:
        """Submit a job to another namespace until the API server accepts it and its pod exists; then let it rest."""
        tail = self._tail()
        deadline = time.monotonic() + START_SECONDS
        job, path = jobs.job_name(0), self._system.kind.path(self._probe)
        with PodWatch(self._plane, self._probe) as watch:
            while True:
                self._check()
                try:
                    self._plane.client.create(path, self._system.kind.manifest(job, workers=1))
                    break
                except ApiError as error:
                    # A webhook that isn't served yet is an internal error of the API server.
                    if error.status < INTERNAL_ERROR or time.monotonic() > deadline:
                        raise TurnFailed(f"{self._system.name}: no job is accepted: {error}") from error
                time.sleep(POLL_SECONDS)
            watch.wait_for_pod(jobs.worker_name(job, 0), deadline, self._check)
        self._settle(tail)

    def _create(self, watch: PodWatch) -> dict[str, float]:
        count = self._jobs
        tail, process = self._tail(), self._running
        cpu, plane_cpu = cpu_seconds(process.tree()), self._plane.cpu_seconds()
        begin = time.monotonic()
        deadline = begin + CREATE_SECONDS + count * CREATE_SECONDS_EACH
        submitted = self._submit(count) - begin
        pods = count * jobs.WORKERS
        watch.wait_for_pods(pods, deadline, self._check)
        seconds = max(list(watch.created.values())) - begin
        calls = working(self._settle(tail))
        if len(watch.created) != pods:
            raise TurnFailed(f"{self._system.name} made {len(watch.created)} pods for {count} jobs, not {pods}")
        used = memory(process.tree())
        return {
            results.RATE: count / seconds,
            results.CREATED: seconds,
            results.SUBMITTED: submitted,
            results.CPU: 1000 * (cpu_seconds(process.tree()) - cpu) / count,
            results.PLANE_CPU: 1000 * (self._plane.cpu_seconds() - plane_cpu) / count,
            results.RSS: used.rss_mib,
            results.PSS: used.pss_mib,
            **calls_for_each(calls, count),
        }

    def _submit(self, count: int) -> float:
        """Submit all jobs; return when that was done."""
        path, kind = self._system.kind.path(self._namespace), self._system.kind

        def submit(number: int) -> dict[str, Any]:
            return self._plane.client.create(path, kind.manifest(jobs.job_name(number)))

        with ThreadPoolExecutor(SUBMITTERS) as pool:
            for _ in pool.map(submit, range(count)):
                pass
        return time.monotonic()

    def _resize(self, watch: PodWatch) -> dict[str, float]:
        """Give one job after another a further worker. A resize takes from its request until the new pod is seen."""
        tail = self._tail()
        spent = []
        for number in spread(self._jobs, self._pace.resizes):
            job = jobs.job_name(number)
            pod = jobs.worker_name(job, jobs.RESIZED - 1)
            path = f"{self._system.kind.path(self._namespace)}/{job}"
            begin = time.monotonic()
            self._plane.client.request("PATCH", path, self._system.kind.resize(jobs.RESIZED), MERGE_PATCH)
            watch.wait_for_pod(pod, begin + RESIZE_SECONDS, self._check)
            spent.append(1000 * (watch.created[pod] - begin))
            time.sleep(max(0.0, begin + self._pace.resize_seconds - time.monotonic()))
        self._settle(tail)
        return {results.RESIZE_P50: statistics.median(spent), results.RESIZE_P99: percentile(spent, 99)}

    def _rest(self) -> dict[str, float]:
        tail, process = self._tail(), self._running
        begin, cpu = time.monotonic(), cpu_seconds(process.tree())
        time.sleep(self._pace.rest_seconds)
        self._check()
        calls, seconds = tail.take(), time.monotonic() - begin
        return {
            **at_rest(calls, seconds),
            results.REST_CPU: 100 * (cpu_seconds(process.tree()) - cpu) / seconds,
        }

    def _settle(self, tail: Tail) -> Counter[Call]:
        """Wait until the controller makes no more calls, but watches and renewals. Return all that were made."""
        calls: Counter[Call] = Counter()
        last = time.monotonic()
        deadline = last + CREATE_SECONDS + self._jobs * CREATE_SECONDS_EACH
        while (now := time.monotonic()) < last + self._pace.quiet_seconds:
            self._check()
            if working(new := tail.take()):
                last = now
            calls += new
            if now > deadline:
                common = ", ".join(f"{call}" for call, _ in working(new).most_common(3))
                raise TurnFailed(f"{self._system.name} doesn't come to rest: {common}")
            time.sleep(POLL_SECONDS)
        return calls

    def _tail(self) -> Tail:
        return Tail(self._plane.site.audit, self._system.controller.user)

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise TurnFailed(f"{self._system.name} isn't started")
        return self._process

    def _check(self) -> None:
        """Raise if the controller has ended."""
        process = self._running
        if process.exit_code is not None:
            raise TurnFailed(f"{self._system.name} ended with {process.exit_code}:\n{process.last_lines()}")

    def _stop(self) -> None:
        """Ask the controller to end, so that it gives up its Lease, and kill it if it doesn't."""
        if self._process is not None:
            self._process.signal(signal.SIGTERM, whole_tree=False)
            self._process.wait(STOP_SECONDS)
            self._process.end()

    def _clean(self, namespace: str) -> None:
        """Delete what a turn leaves, jobs first, a page at a time."""
        root = f"/api/v1/namespaces/{namespace}"
        for path in (self._system.kind.path(namespace), f"{root}/pods", f"{root}/services", f"{root}/events"):
            while self._plane.client.request("DELETE", f"{path}?limit={PAGE}", {"gracePeriodSeconds": 0})["items"]:
                pass


def spread(count: int, chosen: int) -> list[int]:
    """Return `chosen` of the numbers below `count`, evenly spread; all if there are no more."""
    chosen = min(count, chosen)
    return [number * count // chosen for number in range(chosen)]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of at least one value."""
    ordered = sorted(values)
    return ordered[math.ceil(percent / 100 * len(ordered)) - 1]


def calls_for_each(calls: Counter[Call], count: int) -> dict[str, float]:
    """Return the calls for each of `count` jobs: in all, and by kind, the most frequent first."""
    kinds = {results.call(str(call)): number / count for call, number in calls.most_common()}
    shown = {what: number for what, number in kinds.items() if number >= CALLS_SHOWN}
    return {results.CALLS: calls.total() / count, **shown}


def at_rest(calls: Counter[Call], seconds: float) -> dict[str, float]:
    """Return the calls a second: the work, the renewals of the Lease, and the watches that were opened again."""
    lease = sum(number for call, number in calls.items() if call.resource == LEASES and call.verb != WATCH)
    watches = sum(number for call, number in calls.items() if call.verb == WATCH)
    return {
        results.REST_CALLS: working(calls).total() / seconds,
        results.REST_LEASE: lease / seconds,
        results.REST_WATCHES: watches / seconds,
    }


@dataclass(frozen=True)
class Memory:
    """Resident memory. RSS counts a page of several processes in each of them; PSS divides it among them."""

    rss_mib: float
    pss_mib: float


def parse(rollup: str) -> Memory:
    """Return what a text of /proc/PID/smaps_rollup says.

    Raises:
        ValueError: It lacks one of the two fields.
    """
    found = {name: int(size) / _KIB_PER_MIB for name, size in _FIELD.findall(rollup)}
    if missing := {"Rss", "Pss"} - found.keys():
        raise ValueError(f"smaps_rollup without {', '.join(sorted(missing))}: {rollup[:200]!r}")
    return Memory(found["Rss"], found["Pss"])


def memory(pids: Sequence[int]) -> Memory:
    """Return the memory of all these processes together, without ended ones."""
    each = []
    for pid in pids:
        with contextlib.suppress(OSError):
            each.append(parse(Path(f"/proc/{pid}/smaps_rollup").read_text()))
    return Memory(sum(one.rss_mib for one in each), sum(one.pss_mib for one in each))


@dataclass(frozen=True)
class Call:
    """A kind of calls."""

    verb: str
    resource: str
    """With its subresource: `pods`, `pytorchjobs/status`."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def call_of(event: Mapping[str, Any], user: str) -> Call | None:
    """Return the call that an audit event reports; None if it is another user's, or the end of a watch."""
    if event["user"]["username"] != user:
        return None
    verb = event["verb"]
    if event["stage"] != ("ResponseStarted" if verb == WATCH else "ResponseComplete"):
        return None
    reference = event.get("objectRef", {})
    parts = [reference[key] for key in ("resource", "subresource") if reference.get(key)]
    return Call(verb, "/".join(parts) or OTHER)


def working(calls: Counter[Call]) -> Counter[Call]:
    """Return the calls that are neither watches nor about the Lease."""
    return Counter({call: n for call, n in calls.items() if call.verb != WATCH and call.resource != LEASES})


class Tail:
    """Count the API calls of one user that the API server's audit log has got since it was last read.

    The metrics of the API server (`apiserver_request_total`) don't name the client. The log has the users of the
    controllers only, without bodies, which costs the API server a few microseconds a call.
    """

    def __init__(self, log: Path, user: str) -> None:
        self._log, self._user = log, user
        self._position = log.stat().st_size if log.exists() else 0

    def take(self) -> Counter[Call]:
        """Return the calls since the last time, or since this object was made."""
        with self._log.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        found = (call_of(json.loads(line), self._user) for line in whole.splitlines())
        return Counter(call for call in found if call is not None)
