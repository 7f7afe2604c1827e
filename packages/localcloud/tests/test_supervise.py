"""What the supervisor promises about the processes that it started."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from localcloud.errors import ProcessFailed
from localcloud.instance import Instance
from localcloud.supervise import Supervisor

from packages.localcloud.tests.processes import is_alive

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance.create(tmp_path)


@pytest.fixture
def supervisor(instance: Instance) -> Iterator[Supervisor]:
    supervisor = Supervisor(instance)
    yield supervisor
    supervisor.stop_all(grace_seconds=0)


def wait_for_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in path.read_text():
        assert time.monotonic() < deadline, f"{text!r} never came in {path}"
        time.sleep(0.01)


def test_stop_ends_a_process_that_ignores_term(supervisor: Supervisor) -> None:
    process = supervisor.spawn("stubborn", ["sh", "-c", STUBBORN])
    wait_for_text(process.log, "ready")
    supervisor.stop("stubborn", grace_seconds=0.1)
    assert not supervisor.alive("stubborn")
    assert supervisor.names() == []


def test_stop_ends_the_children_of_the_process_too(supervisor: Supervisor, tmp_path: Path) -> None:
    process = supervisor.spawn("family", ["sh", "-c", "sleep 300 & echo child=$! ; wait"])
    wait_for_text(process.log, "child=")
    child = int(process.log.read_text().partition("child=")[2])
    supervisor.stop("family")
    deadline = time.monotonic() + 60
    while is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_of_the_cloud_has_no_variable_of_the_shell(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server would ask a proxy for its kubelets, and etcd refuses flags that ETCD_* contradicts."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "ETCD_NAME", "AWS_PROFILE", "KUBECONFIG"):
        monkeypatch.setenv(name, "http://proxy:3128")
    process = supervisor.spawn("env", ["env"])
    assert process.child.wait(60) == 0
    assert "proxy:3128" not in process.log.read_text()
    assert "PATH=" in process.log.read_text()


def test_stopping_an_unknown_name_is_no_error(supervisor: Supervisor) -> None:
    supervisor.stop("nobody")


def test_a_name_can_be_used_once_at_a_time(supervisor: Supervisor) -> None:
    supervisor.spawn("one", ["sleep", "60"])
    with pytest.raises(ProcessFailed, match="one runs already"):
        supervisor.spawn("one", ["sleep", "60"])


def test_a_missing_program_is_named(supervisor: Supervisor) -> None:
    with pytest.raises(ProcessFailed, match="no-such-program"):
        supervisor.spawn("missing", ["no-such-program"])


def test_all_processes_are_stopped_within_one_deadline(supervisor: Supervisor) -> None:
    for name in ("one", "two"):
        wait_for_text(supervisor.spawn(name, ["sh", "-c", STUBBORN]).log, "ready")
    supervisor.spawn("ended", ["true"]).child.wait()
    assert supervisor.stop_all(grace_seconds=0.1) == ["one", "two"]
    assert supervisor.names() == []


def test_the_last_lines_of_a_log_are_kept_for_error_messages(supervisor: Supervisor) -> None:
    process = supervisor.spawn("talker", ["sh", "-c", "echo first; echo last; sleep 60"])
    wait_for_text(process.log, "last")
    assert supervisor.last_lines("talker", count=1) == "last"
