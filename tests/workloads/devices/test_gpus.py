"""The program of the check: which nodes count, how long it waits, and what it says."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from workloads.devices.in_pod import gpus
from workloads.devices.in_pod.gpus import PATIENCE_SECONDS, Lacking, Watched

RESOURCE = "nvidia.com/gpu"


def node(name: str, shown: int | None, *, kind: str = "g5.xlarge", ready: bool = True) -> dict[str, Any]:
    """A node; `shown` is its number of GPUs, or None where no plug-in has registered."""
    return {
        "metadata": {"name": name, "labels": {gpus.INSTANCE_TYPE: kind}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4"} | ({} if shown is None else {RESOURCE: str(shown)}),
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def watched(count: int = 1) -> Watched:
    return Watched(RESOURCE, count, ["g5.xlarge"], "do something")


def test_it_is_done_when_every_ready_node_has_its_gpus() -> None:
    look = watched()
    assert not look.done([node("a", 1), node("b", None)], 0)
    assert look.done([node("a", 1), node("b", 1), node("c", None, ready=False)], 10)


def test_it_waits_while_there_is_no_node() -> None:
    look = watched()
    assert not look.done([], 0)
    assert not look.done([node("a", None, ready=False)], 10 * PATIENCE_SECONDS)


def test_nodes_without_gpus_end_it_with_one_sentence_that_names_them() -> None:
    look = watched()
    found = [node("a", 0), node("b", None), node("c", 1)]
    assert not look.done(found, 0)
    assert not look.done(found, PATIENCE_SECONDS - 1)
    with pytest.raises(Lacking) as said:
        look.done(found, PATIENCE_SECONDS)
    assert str(said.value) == (
        "2 worker nodes are Ready but show no nvidia.com/gpu (of 3: a, b; g5.xlarge): do something"
    )


def test_a_node_with_too_few_gpus_is_named_too() -> None:
    look = watched(count=4)
    assert not look.done([node("a", 3)], 0)
    with pytest.raises(Lacking, match=r"1 worker node is Ready but shows fewer than 4 nvidia.com/gpu \(of 1: a;"):
        look.done([node("a", 3)], PATIENCE_SECONDS)


def test_each_node_gets_its_own_time() -> None:
    look = watched()
    assert not look.done([node("a", None)], 0)
    assert not look.done([node("a", 1), node("b", None)], PATIENCE_SECONDS)
    assert look.done([node("a", 1), node("b", 1)], PATIENCE_SECONDS + 1)


def test_a_node_that_had_gpus_meanwhile_starts_again() -> None:
    look = watched()
    assert not look.done([node("a", None), node("b", None)], 0)
    assert not look.done([node("a", 1), node("b", None)], 100)
    assert not look.done([node("a", None), node("b", 1)], PATIENCE_SECONDS)


def test_nodes_of_an_earlier_configuration_do_not_count() -> None:
    assert watched().done([node("old", None, kind="m5.large"), node("new", 1)], 0)


def test_nodes_of_karpenter_count_whatever_their_type() -> None:
    surge = node("surge", None, kind="g6.xlarge")
    surge["metadata"]["labels"][gpus.KARPENTER_GPUS] = "1"
    assert not watched().done([surge, node("core", 1)], 0)


@pytest.mark.parametrize("where", ["spec", "metadata"])
def test_nodes_that_are_leaving_do_not_count(where: str) -> None:
    leaving = node("leaving", None)
    leaving[where]["unschedulable" if where == "spec" else "deletionTimestamp"] = "2026-11-24T00:00:00Z"
    assert watched().done([leaving, node("a", 1)], 0)


def test_many_nodes_are_not_all_listed() -> None:
    look, found = watched(), [node(f"n{number}", None) for number in range(8)]
    look.done(found, 0)
    with pytest.raises(Lacking, match=r"of 8: n0, n1, n2, n3, n4 and 3 more;"):
        look.done(found, PATIENCE_SECONDS)


def test_an_api_server_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[Any] = iter([OSError("refused"), ValueError("no JSON"), [node("a", 1)]])

    def look() -> list[Any]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    monkeypatch.setattr(time, "sleep", lambda _: None)
    gpus.wait(watched(), look)
    assert next(answers, None) is None


class _ApiServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        seen = {"path": self.path, "token": self.headers["Authorization"]}
        body = json.dumps({"items": [seen]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_it_asks_for_the_nodes_with_the_labels_and_its_own_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret")
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: None)  # the server here has no TLS
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ApiServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        (seen,) = gpus.listed("tidewater.dev/node-role=worker", tmp_path, address)
    finally:
        server.shutdown()
        server.server_close()
    assert seen == {"path": "/api/v1/nodes?labelSelector=tidewater.dev/node-role%3Dworker", "token": "Bearer secret"}


def test_the_command_line_ends_with_the_sentence_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpus, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(gpus, "listed", lambda _: [node("a", None)])
    given = {"resource": RESOURCE, "count": "1", "node-labels": "x=y", "instance-types": "g5.xlarge", "remedy": "help"}
    assert gpus.main([f"--{key}={value}" for key, value in given.items()]) == 1
    assert capsys.readouterr().err == "1 worker node is Ready but shows no nvidia.com/gpu (of 1: a; g5.xlarge): help\n"
