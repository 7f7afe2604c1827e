"""What process 1 of a node says about its services, and what the daemon reads there."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
from localcloud import kube
from localcloud.instance import Instance
from localcloud.kube.nodes import init
from localcloud.supervise import Supervisor

KUBELET_LOG = """\
I1126 20:00:00.000000       9 server.go:212] "Kubelet version" kubeletVersion="v1.35.0"
E1126 20:00:00.100000       9 kubelet.go:1703] "Failed to start cAdvisor" err="inotify_init: too many open files"
I1126 20:00:00.200000       9 exit.go:1] ends
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(KUBELET_LOG, KUBELET_LOG.splitlines()[1], id="kubelet"),
        pytest.param('level=info msg=a\nlevel=fatal msg="no"\n\n', 'level=fatal msg="no"', id="containerd"),
        pytest.param("Traceback\nOSError: no\n", "OSError: no", id="no level"),
        pytest.param("", "its log is empty", id="nothing"),
    ],
)
def test_the_last_error_of_a_log_is_found(text: str, line: str) -> None:
    assert init.last_error(text) == line


def test_each_end_of_a_service_is_a_line_with_its_last_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(init, "RESTART_SECONDS", 0.0)
    folder, log = tmp_path / "services", tmp_path / "kubelet.log"
    folder.mkdir()
    argv = ["sh", "-c", "echo E1126 too many open files >&2; exit 1"]
    (folder / "kubelet.json").write_text(json.dumps({"argv": argv, "env": {}, "log": str(log), "after": None}))
    services, said = init.Services(folder), ""
    deadline = time.monotonic() + 60
    while "2 times" not in said:
        services.reconcile()
        said += capsys.readouterr().out
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert said.splitlines() == [
        f"kubelet has ended {times} times, now with status 1: E1126 too many open files" for times in (1, 2)
    ]


@pytest.mark.parametrize(
    ("log", "runs", "failure"),
    [
        pytest.param("a\nb\nOSError: no", False, "a\nb\nOSError: no", id="init has died"),
        pytest.param("", False, "its log is empty", id="init has died and said nothing"),
        pytest.param("ip-10-0-0-5 runs", True, "", id="it runs"),
        pytest.param("kubelet has ended 2 times, now with status 1: E", True, "", id="it may be too early"),
        pytest.param(
            "kubelet has ended 3 times, now with status 1: E", True, "kubelet has ended 3 times, now with status 1: E",
            id="again and again",
        ),
        pytest.param("kubelet has ended 9 times, now with status 1: E\nip-10-0-0-5 runs", True, "", id="booted again"),
    ],
)  # fmt: skip
def test_why_a_node_is_not_ready_is_read_from_its_log(
    tmp_path: Path, spec: kube.NodeSpec, log: str, runs: bool, failure: str
) -> None:
    instance = Instance.create(tmp_path / "state")
    supervisor, no_plane = Supervisor(instance), cast(Any, None)  # reading a log needs none
    said = ["sh", "-c", 'printf %s "$1"; [ -z "$2" ] || exec sleep 600', "sh", log, "runs" if runs else ""]
    process = supervisor.spawn(f"node-{spec.instance_id}", said)
    node = kube.Node(instance, supervisor, no_plane, spec, kube.DriverKey("A", "B"))
    try:
        deadline = time.monotonic() + 60
        while process.log.read_text() != log or process.runs != runs:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert node.failure() == failure
    finally:
        supervisor.stop_all(grace_seconds=0)
