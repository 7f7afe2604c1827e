"""The cluster in memory of the commands that only read it, and a clock that lets things happen as time passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cli import fake
from tidewater.kube.cluster import ALL_NAMESPACES, EVERYTHING, Listing, Object, Selection
from tidewater.kube.errors import ClusterError, error_of
from tidewater.kube.kinds import Kind

Call = Callable[[], str]


def forbidden(what: str) -> ClusterError:
    """Return the refusal of a user without rights."""
    return error_of(403, "Forbidden", f"{what} is forbidden")


def not_found(what: str) -> ClusterError:
    """Return the answer about something that does not exist."""
    return error_of(404, "NotFound", f"{what} not found")


class FakeClock(fake.FakeClock):
    """Time that passes only while a command sleeps; then `events` happen, one for each sleep."""

    def __init__(self, events: Iterator[None] | None = None) -> None:
        super().__init__()
        self._events = events or iter(())

    def now(self) -> datetime:
        return datetime(2026, 11, 23, 10, 12, tzinfo=UTC) + timedelta(seconds=self.elapsed)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        next(self._events, None)


class FakeCluster(fake.FakeCluster):
    """Objects by plural, in the namespaces that they say. `refused` are errors by plural or path."""

    def __init__(self, namespace: str = "training", **objects: list[dict[str, Any]]) -> None:
        super().__init__(namespace=namespace)
        self.server = "https://cluster.test"
        self.objects: dict[str, list[dict[str, Any]]] = dict(objects)
        self.pages: dict[str, Call] = {}
        """What pods answer, by name."""
        self.paths: dict[str, str] = {"/version": '{"gitVersion": "v1.34.4"}'}
        self.refused: dict[str, ClusterError] = {}
        self.denied: set[str] = set()
        """Rights that the user does not have: `patch elasticjobs/scale`."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        for each in self.list(kind, Selection(namespace)).items:
            if each["metadata"]["name"] == name:
                return each
        raise not_found(f'{kind.plural} "{name}"')

    def list(self, kind: Kind, selection: Selection = EVERYTHING) -> Listing:
        if error := self.refused.get(f"{selection.namespace}/{kind.plural}") or self.refused.get(kind.plural):
            raise error
        place = selection.namespace or self.namespace
        found = [
            each
            for each in self.objects.get(kind.plural, [])
            if not kind.namespaced or place in (ALL_NAMESPACES, each["metadata"]["namespace"])
            if fake.matches(each, selection)
        ]
        return Listing(found, "1")

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        """Answer a SelfSubjectAccessReview; nothing else is created."""
        asked = object["spec"]["resourceAttributes"]
        path = "/".join(filter(None, [asked["resource"], asked["subresource"]]))
        return {**object, "status": {"allowed": f"{asked['verb']} {path}" not in self.denied}}

    def proxy(self, pod: str, port: int, path: str, namespace: str = "") -> str:
        if "proxy" in self.refused:
            raise self.refused["proxy"]
        if pod not in self.pages:
            raise ClusterError(f"{pod}:{port}{path} does not answer")
        return self.pages[pod]()

    def read(self, path: str) -> str:
        if path in self.refused:
            raise self.refused[path]
        if path not in self.paths:
            raise not_found(path)
        return self.paths[path]
