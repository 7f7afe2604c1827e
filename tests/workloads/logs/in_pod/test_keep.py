"""What keeps the logs of a namespace's pods, against an API server of plain HTTP."""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.workloads.clock import clock_of
from workloads.logs.in_pod import keep
from workloads.logs.in_pod.keep import Cluster, File, Keeper, Names, tidy

NAMES = Names("group-name=elastic.pytorch.org", "job-name", "tidewater.dev/job-uid", "elasticjob-worker")
PODS = "/api/v1/namespaces/training/pods"
PLACE = Path("digits", "uid-of-job")
PATIENCE_SECONDS = 30.0


def at(second: int, text: str) -> bytes:
    return f"2026-03-01T12:00:{second:02}.000000000Z {text}\n".encode()


def pod(name: str = "digits-worker-0", uid: str = "a", *, phase: str = "Running", state: str = "running") -> Any:
    labels = {"job-name": "digits", "tidewater.dev/job-uid": "uid-of-job"}
    statuses = [{"name": "proxy", "state": {"running": {}}}, {"name": "elasticjob-worker", "state": {state: {}}}]
    return {
        "metadata": {"name": name, "uid": uid, "labels": labels},
        "spec": {"containers": [{"name": "proxy"}, {"name": "elasticjob-worker"}]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


class Cut(bytes):
    """The beginning of an answer: the connection breaks before its end."""


@dataclass
class Api:
    """What the API server answers, and what it was asked."""

    pods: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, list[bytes | Callable[[], None]]] = field(default_factory=dict)
    """Answers to one request after the other: bytes, or what is done in place of one."""
    changes: list[Any] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def answer(self, path: str, query: dict[str, str]) -> bytes | None:
        """Return the body of an answer; None for 404."""
        self.asked.append((path, query))
        name, _, log = path.removeprefix(PODS).lstrip("/").partition("/")
        if log:
            rest = self.logs[name]
            found = rest.pop(0) if rest else b""
            if callable(found):
                found()
                return b""
            return found
        if name:
            return json.dumps(self.pods[name]).encode() if name in self.pods else None
        if "watch" in query:
            return b"".join(json.dumps(each).encode() + b"\n" for each in self.changes)
        return json.dumps({"metadata": {"resourceVersion": "7"}, "items": [*self.pods.values()]}).encode()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Yield the answers of an API server that the program asks."""
    found = Api()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            split = urlsplit(self.path)
            assert self.headers["Authorization"] == "Bearer secret"
            body = found.answer(split.path, dict(parse_qsl(split.query)))
            self.send_response(404 if body is None else 200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if body:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
            if not isinstance(body, Cut):
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            pass

    (tmp_path / "token").write_text("secret")
    (tmp_path / "namespace").write_text("training\n")
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: None)  # the server here has no TLS
    clock_of(keep, monkeypatch, sleep=lambda seconds: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(keep, "API", f"http://127.0.0.1:{server.server_address[1]}")
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def cluster(api: Api, tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, keep.API)


def kept(directory: Path, name: str = "digits-worker-0_a.log") -> bytes:
    return (directory / PLACE / name).read_bytes()


def follow(cluster: Cluster, directory: Path, *found: Any) -> Keeper:
    """Let a keeper see pods, and wait until it has read them."""
    keeper = Keeper(cluster, directory, NAMES)
    see(keeper, *found)
    return keeper


def see(keeper: Keeper, *found: Any) -> None:
    before = set(threading.enumerate())
    keeper.see({each["metadata"]["uid"]: each for each in found})
    for thread in set(threading.enumerate()) - before:
        if thread.name.endswith("(follow)"):
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def test_the_log_of_a_pod_that_has_ended_is_kept_under_its_job(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    ended = pod(phase="Failed", state="terminated")
    api.pods["digits-worker-0"] = ended
    api.logs["digits-worker-0"] = [at(1, "a") + at(2, "Traceback")[:-1]]
    follow(cluster, tmp_path, ended)
    assert kept(tmp_path) == at(1, "a") + at(2, "Traceback")
    assert api.asked[-1] == (
        f"{PODS}/digits-worker-0/log",
        {"follow": "true", "timestamps": "true", "container": "elasticjob-worker"},
    )


def test_a_stream_that_breaks_off_is_read_on_without_a_gap_and_nothing_is_twice(
    api: Api, cluster: Cluster, tmp_path: Path
) -> None:
    runs, keeper = pod(), Keeper(cluster, tmp_path, NAMES)
    api.pods["digits-worker-0"] = runs

    def ends() -> None:
        keeper.see({"a": pod(phase="Succeeded", state="terminated")})

    first, again = Cut(at(1, "a") + at(2, "b") + at(3, "half")[:-2]), at(2, "b") + at(3, "half") + at(3, "c")
    api.logs["digits-worker-0"] = [first, again, ends, at(3, "c") + at(4, "d")]
    keeper._pods = {"a": NAMES.pod(runs)}  # type: ignore[dict-item] # it has a log
    keeper._begun = {"a"}
    keeper.follow(keeper._pods["a"])
    assert kept(tmp_path) == at(1, "a") + at(2, "b") + at(3, "half") + at(3, "c") + at(4, "d")
    since = [query.get("sinceTime") for path, query in api.asked if path.endswith("/log")]
    assert since == [None, "2026-03-01T12:00:02Z", "2026-03-01T12:00:03Z", "2026-03-01T12:00:03Z"]


def test_a_line_without_an_end_is_divided_and_does_not_fill_the_memory(
    api: Api, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "LONGEST_LINE", 100)
    monkeypatch.setattr(keep, "_CHUNK", 60)
    ended = pod(phase="Succeeded", state="terminated")
    api.pods["digits-worker-0"] = ended
    api.logs["digits-worker-0"] = [at(1, "x" * 220)[:-1]]
    follow(cluster, tmp_path, ended)
    lines = kept(tmp_path).splitlines()
    assert b"".join(lines) == at(1, "x" * 220)[:-1]
    assert max(map(len, lines)) <= 160


def test_another_pod_of_the_name_is_not_taken_for_this_one(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    api.pods["digits-worker-0"] = pod(uid="b")
    api.logs["digits-worker-0"] = [at(1, "of b")]
    follow(cluster, tmp_path, pod(uid="a"))
    assert not [path for path, _ in api.asked if path.endswith("/log")]


def test_a_pod_that_is_gone_is_given_up(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    follow(cluster, tmp_path, pod())
    assert [path for path, _ in api.asked] == [f"{PODS}/digits-worker-0"]


def test_each_pod_is_read_once(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    ended = pod(phase="Succeeded", state="terminated")
    api.pods["digits-worker-0"] = ended
    api.logs["digits-worker-0"] = [at(1, "a")]
    keeper = follow(cluster, tmp_path, ended)
    asked = len(api.asked)
    see(keeper, ended)
    assert len(api.asked) == asked


def test_pods_that_are_no_jobs_and_those_that_have_not_started_have_no_log() -> None:
    stranger = pod()
    del stranger["metadata"]["labels"]["tidewater.dev/job-uid"]
    assert NAMES.pod(stranger) is None
    assert NAMES.pod(pod(state="waiting", phase="Pending")) is None
    crashed = pod(state="waiting")
    crashed["status"]["containerStatuses"][1]["lastState"] = {"terminated": {"exitCode": 1}}
    found = NAMES.pod(crashed)
    assert found is not None
    assert not found.over


def test_a_pods_only_container_needs_no_name() -> None:
    alone = pod()
    alone["spec"]["containers"] = [{"name": "main"}]
    alone["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    found = NAMES.pod(alone)
    assert found is not None
    assert found.container == "main"


def test_the_program_goes_on_after_the_last_whole_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(at(1, "a") + at(2, "b" * 3 * 65_536) + at(3, "cut")[:25])
    file = File(path, print)
    assert file.since() == "2026-03-01T12:00:02Z"
    file.append(at(1, "a") + at(2, "b"))
    file.append(at(2, "b") + at(3, "whole"))
    assert path.read_bytes() == at(1, "a") + at(2, "b" * 3 * 65_536) + at(3, "whole")


def test_a_pod_has_two_files_of_the_largest_size_at_most_and_the_newest_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "LARGEST_BYTES", 100)
    path = tmp_path / "job" / "a.log"
    file = File(path, print)
    for second in range(10):
        file.append(at(second, "1234567890"))
    lines = [at(second, "1234567890") for second in range(10)]
    assert path.read_bytes() == b"".join(lines[8:])
    assert (tmp_path / "job" / "a.log.1").read_bytes() == b"".join(lines[6:8])
    assert File(path, print).last == lines[9][:31]


def test_on_a_full_volume_lines_wait_and_none_is_lost_or_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    file = File(path, keep.say)
    file.append(at(1, "a"))
    real, refusals = Path.open, [2]

    class Full:
        """A file on a volume that takes the first bytes only."""

        def __init__(self, opened: Any) -> None:
            self._opened = opened

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._opened.close()

        def write(self, data: bytes) -> None:
            self._opened.write(data[:5])
            raise OSError(28, "No space left on device")

    def full(self: Path, mode: str = "r", **options: Any) -> Any:
        opened = real(self, mode, **options)
        if mode == "ab" and refusals[0]:
            refusals[0] -= 1
            return Full(opened)
        return opened

    monkeypatch.setattr(Path, "open", full)
    clock_of(keep, monkeypatch, sleep=lambda seconds: None)
    file.append(at(2, "b"))
    assert path.read_bytes() == at(1, "a") + at(2, "b")
    assert capsys.readouterr().out == "a.log waits: No space left on device\n" * 2


def test_a_volume_that_does_not_answer_costs_no_line_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    file = File(path, print)
    file.append(at(1, "a"))
    real, refusals = Path.stat, [1]

    def stale(self: Path, **options: Any) -> os.stat_result:
        if self == path and refusals[0]:
            refusals[0] -= 1
            raise OSError(116, "Stale file handle")
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", stale)
    clock_of(keep, monkeypatch, sleep=lambda seconds: None)
    file.append(at(2, "b"))
    assert (path.read_bytes(), refusals) == (at(1, "a") + at(2, "b"), [0])


def test_the_watch_yields_the_pods_now_and_after_each_change(api: Api, cluster: Cluster) -> None:
    api.pods["digits-worker-0"] = pod()
    api.changes = [
        {"type": "ADDED", "object": pod("digits-worker-1", "b")},
        {"type": "DELETED", "object": pod()},
        {"type": "ERROR", "object": {"code": 410}},
        {"type": "ADDED", "object": pod("digits-worker-2", "c")},
    ]
    assert [sorted(each) for each in cluster.snapshots(NAMES.selector)] == [["a"], ["a", "b"], ["b"]]
    selector = {"labelSelector": NAMES.selector}
    assert api.asked == [
        (PODS, selector),
        (PODS, {**selector, "watch": "1", "resourceVersion": "7", "timeoutSeconds": str(keep.WATCH_SECONDS)}),
    ]


def test_what_is_old_is_deleted_with_the_folders_that_are_empty_then(tmp_path: Path) -> None:
    for name, written in {"old/u/p_1.log": 10, "old/u/p_1.log.1": 5, "new/u/p_2.log": 10, "new/u/p_3.log": 30}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (written, written))
    tidy(tmp_path, 20.0)
    assert [str(each.relative_to(tmp_path)) for each in sorted(tmp_path.rglob("*"))] == [
        "new",
        "new/u",
        "new/u/p_3.log",
    ]
