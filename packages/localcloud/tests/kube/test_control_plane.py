"""A control plane when its programs end or don't start, and nodes that end while it is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from localcloud import tools
from localcloud.instance import Instance
from localcloud.kube.control_plane import ControlPlane, ControlPlaneSpec
from localcloud.kube.errors import ApiError, KubeError

OLD, NEW = "1.34", "1.35"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


class FakeSupervisor:
    """Runs programs by name; those of one version die at once."""

    def __init__(self, broken: str) -> None:
        self.running: dict[str, str] = {}
        self.ended: set[str] = set()
        self.started: list[str] = []
        self._broken = broken

    def spawn(self, name: str, argv: list[str], *, netns: bool) -> None:
        assert name not in self.running or name in self.ended
        self.ended.discard(name)
        self.running[name] = argv[0]
        self.started.append(name)

    def stop(self, name: str, grace_seconds: float) -> None:
        self.running.pop(name, None)

    def find(self, name: str) -> str | None:
        return self.running.get(name)

    def alive(self, name: str) -> bool:
        return name not in self.ended and self._broken not in self.running[name]

    def last_lines(self, name: str) -> str:
        return "unknown flag"


def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> tuple[ControlPlane, FakeSupervisor]:
    """Return a control plane of the old version that runs."""
    monkeypatch.setattr(tools, "kubernetes", lambda version, name: Path("/", version, name))
    supervisor: Any = FakeSupervisor(broken)
    for component in COMPONENTS:
        supervisor.spawn(f"demo-{component}", [f"/{OLD}/{component}"], netns=True)
    made = ControlPlane(Instance("abcdef", tmp_path, 1, 4566), supervisor, ControlPlaneSpec("demo", OLD, 0))
    client: Any = SimpleNamespace(text=lambda path: "ok")
    made._client = client
    return made, supervisor


def programs(version: str) -> dict[str, str]:
    return {f"demo-{component}": f"/{version}/{component}" for component in COMPONENTS}


def test_an_upgrade_restarts_everything_in_the_new_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, supervisor = plane(tmp_path, monkeypatch, broken="nothing")
    made.upgrade(NEW, time.monotonic() + 60)
    assert (supervisor.running, made.spec.version) == (programs(NEW), NEW)


def test_a_version_that_does_not_start_leaves_the_old_one_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, supervisor = plane(tmp_path, monkeypatch, broken=NEW)
    with pytest.raises(KubeError, match="kube-apiserver died"):
        made.upgrade(NEW, time.monotonic() + 60)
    assert (supervisor.running, made.spec.version) == (programs(OLD), OLD)


def test_what_has_ended_by_itself_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, supervisor = plane(tmp_path, monkeypatch, broken="nothing")
    supervisor.ended.add("demo-kube-scheduler")
    made.revive()
    assert (supervisor.running, supervisor.ended) == (programs(OLD), set())


def test_with_the_api_server_those_that_watch_it_start_anew_as_soon_as_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, supervisor = plane(tmp_path, monkeypatch, broken="nothing")
    supervisor.started.clear()
    client: Any = SimpleNamespace(text=supervisor.started.append)
    made._client = client
    supervisor.ended.add("demo-kube-apiserver")
    made.revive()
    assert supervisor.started == [
        "demo-kube-apiserver",
        "/readyz",
        "demo-kube-controller-manager",
        "demo-kube-scheduler",
    ]
    assert (supervisor.running, supervisor.ended) == (programs(OLD), set())


@pytest.mark.parametrize("act", [ControlPlane.revive, lambda made: made.upgrade(NEW, time.monotonic() + 60)])
def test_an_api_server_that_does_not_come_back_leaves_nothing_stopped_for_good(
    act: Callable[[ControlPlane], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, supervisor = plane(tmp_path, monkeypatch, broken="kube-apiserver")
    with pytest.raises(KubeError, match="kube-apiserver died"):
        act(made)
    assert supervisor.running == programs(OLD)


def test_what_was_stopped_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, supervisor = plane(tmp_path, monkeypatch, broken="nothing")
    made.stop()
    made.revive()
    assert supervisor.running == {}


def test_an_upgrade_is_not_disturbed_while_its_programs_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, supervisor = plane(tmp_path, monkeypatch, broken="nothing")

    def meanwhile(path: str) -> str:
        supervisor.ended.add("demo-kube-apiserver")
        made.revive()
        assert supervisor.ended == {"demo-kube-apiserver"}
        supervisor.ended.clear()
        return "ok"

    client: Any = SimpleNamespace(text=meanwhile)
    made._client = client
    made.upgrade(NEW, time.monotonic() + 60)
    assert supervisor.running == programs(NEW)


class AwayClient:
    """An API server that answers from the third request on, and has one pod until that is evicted."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._pods = [{"metadata": {"name": "p", "namespace": "n", "uid": "u"}}]

    def patch(self, path: str, body: Any) -> None:
        self._answer("patch")

    def get(self, path: str) -> dict[str, Any]:
        self._answer("get")
        return {"items": list(self._pods)}

    def create(self, path: str, body: Any) -> None:
        self._answer("evict")
        self._pods.clear()

    def delete(self, path: str, options: Any = None) -> bool:
        self._answer("delete")
        self._pods.clear()
        return True

    def _answer(self, verb: str) -> None:
        self.asked.append(verb)
        if len(self.asked) < 3:
            raise ApiError(0, "connection refused")


@pytest.mark.parametrize(
    ("end", "asked"), [("drain", ["patch", "get", "evict", "get"]), ("delete_node", ["delete", "get"])]
)
def test_a_node_that_ends_during_an_upgrade_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, asked: list[str]
) -> None:
    made, _ = plane(tmp_path, monkeypatch, broken="nothing")
    client: Any = AwayClient()
    made._client = client
    deadline = () if end == "delete_node" else (time.monotonic() + 60,)
    getattr(made, end)("node", *deadline)
    assert client.asked[2:] == asked
