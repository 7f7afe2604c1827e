"""A cluster in memory that keeps state, for tests of the commands. It lists, watches and logs as one would.

With a `FakeClock`, a watch that has nothing to tell carries out the next of the `steps` that the test has planned, or
lets the time pass. Without one it waits for other threads.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from tidewater.elasticjob import names
from tidewater.kube.cluster import ALL_NAMESPACES, EVERYTHING, Change, Listing, LogOptions, Object, Selection, Table
from tidewater.kube.errors import ClusterError, Unreachable, error_of
from tidewater.kube.kinds import PODS, Kind

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
PATIENCE_SECONDS = 30.0

Key = tuple[str, str, str]


class FakeClock:
    """Time that passes only when a command waits."""

    def __init__(self) -> None:
        self.elapsed = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.elapsed += seconds


@dataclass
class Log:
    """What a container has written."""

    lines: list[str] = field(default_factory=list)
    closed: bool = False
    readers: int = 0

    def has_more_than(self, lines: int) -> bool:
        """Return whether there is something for a reader who has read so many lines: more of them, or the end."""
        return len(self.lines) > lines or self.closed


class FakeCluster:
    """See `tidewater.kube.cluster.Cluster`."""

    def __init__(self, clock: FakeClock | None = None, namespace: str = "training") -> None:
        self.namespace = namespace
        self.server = "https://fake"
        self.clock = clock
        self.steps: list[Callable[[], None]] = []
        self.sent: list[tuple[str, Object]] = []
        """What was created and patched: the verb and the body."""
        self.logs: dict[str, Log] = {}
        self.failures: dict[tuple[str, str], ClusterError] = {}
        """Errors by method and kind, for example ("list", "Pod")."""
        self.down_until = 0.0
        """The API server does not answer before this time of the `FakeClock`, or as `down` says."""
        self.down: ClusterError = Unreachable("the API server can't be reached")
        self.forgotten_before = 0
        """Watches from an older version are refused as too old."""
        self._objects: dict[Key, Object] = {}
        self._history: list[tuple[int, Kind, Change]] = []
        self._version = 100
        self._news = threading.Condition()

    # What tests do.

    def put(self, kind: Kind, object: Object) -> Object:
        """Create or replace an object, as another client would."""
        with self._news:
            metadata = object.setdefault("metadata", {})
            if kind.namespaced:
                metadata.setdefault("namespace", self.namespace)
            key = self._key(kind, metadata["name"], metadata.get("namespace", ""))
            old = self._objects.get(key)
            self._version += 1
            metadata.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{self._version}")
            metadata.setdefault("creationTimestamp", START.isoformat())
            metadata["resourceVersion"] = str(self._version)
            self._objects[key] = copy.deepcopy(object)
            self._tell(kind, Change("MODIFIED" if old else "ADDED", copy.deepcopy(object)))
            return object

    def change(self, kind: Kind, name: str, **parts: Any) -> None:
        """Merge `parts` into an object, as the controller or the kubelet would."""
        self.put(kind, _merged(self.get(kind, name), parts))

    def remove(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Remove an object at once."""
        with self._news:
            found = self._objects.pop(self._key(kind, name, namespace))
            self._version += 1
            found["metadata"]["resourceVersion"] = str(self._version)
            self._tell(kind, Change("DELETED", found))

    def write(self, pod: str, *lines: str) -> None:
        """Let a pod's container write lines."""
        with self._news:
            self.logs.setdefault(pod, Log()).lines += lines
            self._news.notify_all()

    def close(self, pod: str) -> None:
        """End the log of a pod."""
        with self._news:
            self.logs.setdefault(pod, Log()).closed = True
            self._news.notify_all()

    def await_reader(self, pod: str) -> None:
        """Return when a command follows the log of a pod."""
        with self._news:
            assert self._news.wait_for(lambda: self.logs.setdefault(pod, Log()).readers, PATIENCE_SECONDS)

    # What commands do.

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        self._may("get", kind)
        found = self._objects.get(self._key(kind, name, namespace))
        if found is None:
            raise error_of(404, "NotFound", f'{kind.plural}.{kind.group} "{name}" not found')
        return copy.deepcopy(found)

    def list(self, kind: Kind, selection: Selection = EVERYTHING) -> Listing:
        self._may("list", kind)
        with self._news:
            return Listing([copy.deepcopy(each) for each in self._selected(kind, selection)], str(self._version))

    def table(self, kind: Kind, selection: Selection = EVERYTHING) -> Table:
        found = self.list(kind, selection).items
        return Table(
            columns=["Name", "State", "Desired", "Active", "Age"],
            rows=[_row(each) for each in found],
            names=[(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found],
        )

    def watch(self, kind: Kind, selection: Selection, since: str, seconds: float) -> Iterator[Change]:
        self._may("watch", kind)
        seen = int(since)
        if seen < self.forgotten_before:
            if self.steps:
                self.steps.pop(0)()
            raise error_of(410, "Expired", "too old resource version")
        until = (self.clock.monotonic() + seconds) if self.clock else 0.0
        while True:
            with self._news:
                news = [each for each in self._history if each[0] > seen and each[1] == kind]
                if not news and self.clock is None:
                    self._news.wait(timeout=PATIENCE_SECONDS)
                    continue
            for version, _, change in news:
                seen = version
                if matches(change.object, selection):
                    yield change
            if news or self.clock is None:
                continue
            if self.steps:
                self.steps.pop(0)()
                self._may("watch", kind)
            elif self.clock.monotonic() >= until:
                return
            else:
                self.clock.sleep(max(0.0, until - self.clock.monotonic()))

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        self._may("create", kind)
        self.sent.append(("create", copy.deepcopy(object)))
        metadata = object["metadata"]
        if self._key(kind, metadata["name"], metadata.get("namespace", "")) in self._objects:
            text = f'{kind.plural}.{kind.group} "{metadata["name"]}" already exists'
            raise error_of(409, "AlreadyExists", text)
        return object if dry_run else self.put(kind, copy.deepcopy(object))

    def patch(self, kind: Kind, name: str, change: Object, *, subresource: str = "", namespace: str = "") -> Object:
        self._may("patch", kind)
        self.sent.append((f"patch {subresource}".strip(), copy.deepcopy(change)))
        own = change
        if subresource == "scale":
            own = {"spec": {"replicaSpecs": {names.WORKER: {"replicas": change["spec"]["replicas"]}}}}
        before = self.get(kind, name, namespace)
        after = _merged(before, own)
        changed = after.get("spec") != before.get("spec")
        after["metadata"]["generation"] = after["metadata"].get("generation", 1) + changed
        return self.put(kind, after)

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        self._may("delete", kind)
        self.get(kind, name, namespace)
        self.remove(kind, name, namespace)

    def log(self, pod: str, options: LogOptions, namespace: str = "") -> Iterator[str]:
        self._may("log", PODS)
        found = self.get(PODS, pod, namespace)
        statuses = found.get("status", {}).get("containerStatuses", [])
        runs = any("running" in each["state"] for each in statuses)
        over = any("terminated" in {**each["state"], **each.get("lastState", {})} for each in statuses)
        if not runs and not over:
            text = f'container "{options.container}" in pod "{pod}" is waiting to start: ContainerCreating'
            raise error_of(400, "BadRequest", text)
        log = self.logs.setdefault(f"{pod} before" if options.previous else pod, Log())
        with self._news:
            log.readers += 1
            self._news.notify_all()
            existing = [each for each in log.lines if each[:19] >= options.since_time[:19]]
            begin = 0 if options.tail is None else max(0, len(existing) - options.tail)
            done = len(log.lines)
        yield from existing[begin:]
        while options.follow and runs:
            with self._news:
                ready = self._news.wait_for(partial(log.has_more_than, done), PATIENCE_SECONDS)
                assert ready, f"nobody writes to or closes the log of {pod}"
                more = log.lines[done:]
                done = len(log.lines)
            yield from more
            if log.closed and not more:
                return

    def proxy(self, pod: str, port: int, path: str, namespace: str = "") -> str:
        raise error_of(404, "NotFound", f'pods "{pod}" not found')

    def read(self, path: str) -> str:
        return "ok"

    def _may(self, method: str, kind: Kind) -> None:
        error = self.failures.get((method, kind.kind))
        if error:
            raise error
        if self.clock and self.clock.elapsed < self.down_until:
            raise self.down

    def _selected(self, kind: Kind, selection: Selection) -> Sequence[Object]:
        namespace = selection.namespace or self.namespace
        everywhere = namespace == ALL_NAMESPACES
        return [
            each
            for (plural, own, _), each in sorted(self._objects.items())
            if plural == kind.plural and (everywhere or own in ("", namespace)) and matches(each, selection)
        ]

    def _key(self, kind: Kind, name: str, namespace: str) -> Key:
        return kind.plural, (namespace or self.namespace) if kind.namespaced else "", name

    def _tell(self, kind: Kind, change: Change) -> None:
        self._history.append((self._version, kind, change))
        self._news.notify_all()


def job(name: str = "digits", *, replicas: int = 2, low: int = 1, high: int = 4, **status: Any) -> Object:
    """Return an ElasticJob as the controller would have it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "generation": 1},
        "spec": {
            "rdzvEndpoint": "etcd:2379",
            "minReplicas": low,
            "maxReplicas": high,
            "replicaSpecs": {names.WORKER: {"replicas": replicas, "template": {"spec": {"containers": []}}}},
        },
        "status": {"observedGeneration": 1, **status},
    }


def running(active: int = 2, desired: int = 2) -> dict[str, Any]:
    """Return the status of a job that runs."""
    return {
        "state": "Running",
        "desired": desired,
        "settledReplicas": active,
        "replicaStatuses": {names.WORKER: {"active": active}},
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "reason": "ElasticJobRunning",
                "message": "ElasticJob digits is running.",
                "lastTransitionTime": START.isoformat(),
            }
        ],
    }


def pod(index: int, *, owner: str = "digits", type: str = names.WORKER, state: str = "running") -> Object:
    """Return a pod of a job; `state` is a container's: running, terminated or waiting."""
    details = {"exitCode": 0, "reason": "Completed"} if state == "terminated" else {}
    name = names.pod_name(owner, type, index)
    phases = {"running": "Running", "terminated": "Succeeded", "waiting": "Pending"}
    return {
        "metadata": {"name": name, "labels": dict(names.pod_labels(owner, type, index))},
        "spec": {"nodeName": f"node-{index}", "containers": [{"name": names.WORKER_CONTAINER}]},
        "status": {
            "phase": phases[state],
            "containerStatuses": [{"name": names.WORKER_CONTAINER, "restartCount": 0, "state": {state: details}}],
        },
    }


def crashing(index: int) -> Object:
    """Return a pod with a container that has failed and waits to be started again."""
    found = pod(index, state="waiting")
    found["status"]["phase"] = "Running"
    found["status"]["containerStatuses"][0] |= {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    }
    return found


def _row(found: Object) -> list[str]:
    status = found.get("status", {})
    active = status.get("replicaStatuses", {}).get(names.WORKER, {}).get("active", 0)
    return [found["metadata"]["name"], status.get("state", "<none>"), str(status.get("desired", 0)), str(active), "5m"]


def matches(found: Object, selection: Selection) -> bool:
    labels = found["metadata"].get("labels", {})
    wanted = [part.partition("=") for part in selection.labels.split(",") if part]
    fields = [part.partition("=") for part in selection.fields.split(",") if part]
    return all(labels.get(key) == value for key, _, value in wanted) and all(
        _field(found, path) == value for path, _, value in fields
    )


def _field(found: Mapping[str, Any], path: str) -> Any:
    value: Any = found
    for part in path.split("."):
        value = value.get(part, {})
    return value


def _merged(found: Object, change: Mapping[str, Any]) -> Object:
    """Apply a JSON merge patch (RFC 7386)."""
    result = copy.deepcopy(found)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = _merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result
