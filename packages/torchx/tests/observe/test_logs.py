"""The log of one replica, read and followed, while pods end and are replaced."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tidewater_torchx.observe import logs
from tidewater_torchx.observe.logs import Follower, Wanted, written

from packages.torchx.tests.doubles import KubernetesInMemory, ended, pod
from tests.cli.fake import job
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import LogOptions, Object
from tidewater.kube.errors import ClusterError, LoginFailed, Unreachable, error_of
from tidewater.kube.kinds import PODS

OWN = "app-worker-0"
WANTED = Wanted("training", "app", names.WORKER, 0)
WAITING: dict[str, Any] = {"phase": "Pending", "containerStatuses": []}


def at(second: int, text: str, fraction: str = "") -> str:
    """Return a line as the kubelet writes it."""
    return f"2026-03-01T12:00:{second:02}{fraction}Z {text}"


@pytest.fixture
def cluster(cluster: KubernetesInMemory) -> KubernetesInMemory:
    cluster.put(JOBS, job("app", state="Running"))
    return cluster


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again sooner, so that a test of it takes no seconds."""
    monkeypatch.setattr(logs, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(logs, "LATE_SECONDS", 0.01)


class Interrupted(KubernetesInMemory):
    """A cluster that fails twice when it is asked for a log."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[ClusterError] = [Unreachable("gone"), error_of(500, "InternalError", "no route")]

    def log(self, pod: str, options: LogOptions, namespace: str = "") -> Iterator[str]:
        if self.errors:
            raise self.errors.pop()
        yield from super().log(pod, options, namespace)


def over(found: Object | None) -> bool:
    return found is None or found.get("status", {}).get("state") in ("Succeeded", "Failed")


def followed(cluster: KubernetesInMemory, wanted: Wanted = WANTED) -> Iterator[str]:
    return Follower(cluster, wanted, over).lines()


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Run `act` in a thread during the block; raise here what it raised."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    if failed:
        raise failed[0]


def test_what_is_written_is_read_without_its_times(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(1, "a"), at(2, "  b "), at(3, ""))
    assert list(written(cluster, WANTED)) == ["a", "  b ", ""]


def test_only_that_replica_of_that_type_is_read(cluster: KubernetesInMemory) -> None:
    for type_, index in ((names.WORKER, 0), (names.WORKER, 1), ("ps", 1)):
        cluster.put(PODS, pod("app", index, type=type_))
        cluster.write(names.pod_name("app", type_, index), at(1, f"{type_} {index}"))
    assert list(written(cluster, Wanted("training", "app", "ps", 1))) == ["ps 1"]


@pytest.mark.parametrize("status", [None, WAITING], ids=["without-a-pod", "not-started"])
def test_a_replica_that_has_not_run_has_no_lines(cluster: KubernetesInMemory, status: dict[str, Any] | None) -> None:
    if status is not None:
        cluster.put(PODS, pod("app", **status))
    assert list(written(cluster, WANTED)) == []


def test_only_lines_since_a_time_to_the_fraction_of_a_second(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(1, "a"), at(2, "b", ".1"), at(2, "c", ".500000001"), at(3, "d"))
    since = datetime(2026, 3, 1, 12, 0, 2, 500_000, tzinfo=UTC)
    assert list(written(cluster, Wanted("training", "app", names.WORKER, 0, since))) == ["c", "d"]


def test_of_a_pod_that_failed_before_its_container_began_that_is_shown(cluster: KubernetesInMemory) -> None:
    fetch = {"name": "fetch-code", "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}
    waits = {"name": names.WORKER_CONTAINER, "restartCount": 0, "state": {"waiting": {}}}
    found = pod("app", phase="Failed", initContainerStatuses=[fetch], containerStatuses=[waits, fetch])
    assert logs.run_of(found) == logs.Run("", OWN, "fetch-code", 0)


def test_following_ends_with_the_application(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(1, "a"))

    def act() -> None:
        cluster.await_reader(OWN)
        cluster.write(OWN, at(2, "b"))
        cluster.close(OWN)
        cluster.put(PODS, pod("app", **ended(0)))
        cluster.change(JOBS, "app", status={"state": "Succeeded"})

    with meanwhile(act):
        assert list(followed(cluster)) == ["a", "b"]


def test_a_replacement_is_followed_from_its_beginning(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(1, "first"))
    lines = followed(cluster)
    assert next(lines) == "first"
    cluster.close(OWN)
    cluster.remove(PODS, OWN)
    cluster.logs.pop(OWN)
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(2, "second"))
    cluster.change(JOBS, "app", status={"state": "Running", "restarts": 1})
    assert next(lines) == "second"
    cluster.close(OWN)
    cluster.put(PODS, pod("app", **ended(0)))
    cluster.change(JOBS, "app", status={"state": "Succeeded"})
    assert list(lines) == []


def test_a_pod_on_a_lost_node_does_not_hold_up_its_replacement(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(1, "first"))
    lines = followed(cluster)
    assert next(lines) == "first"
    cluster.remove(PODS, OWN)
    cluster.logs["lost"] = cluster.logs.pop(OWN)  # the stream of the first pod neither ends nor says anything any more
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(2, "second"))
    cluster.change(JOBS, "app", status={"state": "Running", "restarts": 1})
    assert next(lines) == "second"
    lines.close()  # type: ignore[attr-defined] # it is a generator


def test_a_replica_that_comes_late_is_waited_for(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app", **WAITING))

    def act() -> None:
        cluster.put(PODS, pod("app"))
        cluster.change(JOBS, "app", status={"state": "Running", "desired": 1})
        cluster.await_reader(OWN)
        cluster.write(OWN, at(1, "late"))
        cluster.close(OWN)
        cluster.put(PODS, pod("app", **ended(0)))
        cluster.change(JOBS, "app", status={"state": "Succeeded"})

    with meanwhile(act):
        assert list(followed(cluster)) == ["late"]


def test_a_finished_application_is_read_to_its_end(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app", **ended(3)))
    cluster.write(OWN, at(1, "a"), at(2, "b"))
    cluster.change(JOBS, "app", status={"state": "Failed"})
    assert list(followed(cluster)) == ["a", "b"]


def test_a_finished_application_without_a_pod_has_no_lines(cluster: KubernetesInMemory) -> None:
    cluster.change(JOBS, "app", status={"state": "Failed"})
    assert list(followed(cluster)) == []


def test_following_ends_when_the_application_is_deleted(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app", **ended(0)))
    cluster.write(OWN, at(1, "a"))
    lines = followed(cluster)
    assert next(lines) == "a"
    cluster.remove(PODS, OWN)
    cluster.remove(JOBS, "app")
    assert list(lines) == []


def test_a_stream_that_breaks_off_is_read_on_without_repeating(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(1, "a"), at(2, "b"))
    lines = followed(cluster)
    assert [next(lines), next(lines)] == ["a", "b"]
    cluster.close(OWN)  # the API server cuts the connection; the container runs on
    cluster.await_reader(OWN)
    cluster.write(OWN, at(2, "c", ".5"))
    assert next(lines) == "c"
    cluster.put(PODS, pod("app", **ended(0)))
    cluster.change(JOBS, "app", status={"state": "Succeeded"})
    assert list(lines) == []


def test_an_api_server_that_does_not_answer_for_a_while_is_asked_again() -> None:
    cluster = Interrupted()
    cluster.put(JOBS, job("app", state="Running"))
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(1, "a"))
    lines = followed(cluster)
    assert next(lines) == "a"
    assert cluster.errors == []
    lines.close()  # type: ignore[attr-defined]
    cluster.end_streams()


def test_a_long_log_is_read_to_its_end(cluster: KubernetesInMemory) -> None:
    seconds = itertools.count()  # every look at the clock takes a second
    cluster.put(PODS, pod("app", **ended(0)))
    cluster.write(OWN, *(at(1, str(number)) for number in range(3000)))
    cluster.change(JOBS, "app", status={"state": "Succeeded"})
    assert len(list(Follower(cluster, WANTED, over, lambda: float(next(seconds))).lines())) == 3000


def test_a_straggler_does_not_hold_up_the_end(cluster: KubernetesInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LAST_SECONDS", 0.2)
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, at(1, "a"))
    lines = followed(cluster)
    assert next(lines) == "a"
    cluster.change(JOBS, "app", status={"state": "Succeeded"})
    assert list(lines) == []


@pytest.mark.parametrize(
    ("method", "kind", "error"),
    [
        ("list", names.KIND, error_of(403, "Forbidden", "no")),
        ("list", "Pod", error_of(403, "Forbidden", "no")),
        ("log", "Pod", error_of(403, "Forbidden", "pods/log is forbidden")),
        ("log", "Pod", LoginFailed("expired")),
        ("list", names.KIND, Unreachable("gone")),
    ],
)
def test_what_no_patience_mends_is_an_error(
    cluster: KubernetesInMemory, method: str, kind: str, error: Exception
) -> None:
    cluster.put(PODS, pod("app"))
    cluster.failures[method, kind] = error  # type: ignore[assignment]
    with pytest.raises(type(error)):
        list(followed(cluster))


def test_whoever_stops_reading_leaves_nothing_behind(cluster: KubernetesInMemory) -> None:
    cluster.put(PODS, pod("app"))
    cluster.write(OWN, *(at(1, str(number)) for number in range(5000)))
    follower = Follower(cluster, WANTED, over)
    lines = follower.lines()
    assert next(lines) == "0"
    lines.close()  # type: ignore[attr-defined]
    assert follower._stop.is_set()
