"""The program of the check while no node is Ready: what it says of that, where, and for how long it waits."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.controller.fakes import karpenter
from tests.workloads.clock import clock_of
from workloads.devices.in_pod import gpus
from workloads.devices.in_pod.gpus import NODE_SECONDS, SHORTAGE, STALE, Cluster, Said, why_no_node

ARGUMENTS = {
    "resource": "nvidia.com/gpu",
    "count": "1",
    "node-labels": "tidewater.dev/node-role=worker",
    "instance-types": "g5.xlarge",
    "remedy": "help",
    "job": "gpu-check",
    "job-uid": "uid-1",
}
NO_CAPACITY = (
    "Karpenter: InsufficientCapacityError: insufficient capacity, with fleet error(s), InsufficientInstanceCapacity: We"
    " currently do not have sufficient m5.large capacity in the Availability Zone you requested (us-west-2a)."
)
NODES, CLAIMS = "/api/v1/nodes", "/apis/karpenter.sh/v1/nodeclaims"
CUT_OFF = [{"cut": "off"}]
"""Items of an answer that ends before its length."""
EVENTS, CLAIM_EVENTS = (f"/api/v1/namespaces/{each}/events" for each in ("tidewater-devices", "default"))


def warned(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "type": "Warning"}


def short(seconds: float = 0) -> dict[str, Any]:
    return warned(karpenter.short(karpenter.NO_CAPACITY, seconds))


def failed(seconds: float = 0) -> dict[str, Any]:
    return warned(karpenter.failed(karpenter.NO_OFFERING, seconds))


def after(**elapsed: float) -> Any:
    return karpenter.at(elapsed.get("seconds", 1))


def test_a_shortage_is_said_in_ec2s_words() -> None:
    assert why_no_node([], [short()], after()) == Said(NO_CAPACITY, trouble=True)


def test_a_pod_that_no_type_fits_is_said_in_karpenters_words() -> None:
    said = why_no_node([], [failed()], after())
    assert said.trouble
    assert said.text.startswith("Karpenter: FailedScheduling: incompatible requirements, no instance type has the")


def test_after_a_shortage_that_there_is_no_offering_says_less_for_ten_minutes() -> None:
    later = SHORTAGE.total_seconds()
    assert why_no_node([], [failed(later), short()], after(seconds=later)).text == NO_CAPACITY
    assert "FailedScheduling" in why_no_node([], [failed(later + 1), short()], after(seconds=later + 1)).text


def test_the_newest_words_count_and_old_ones_and_normal_events_do_not() -> None:
    quota = warned(karpenter.short(karpenter.NO_QUOTA, 60))
    assert "VcpuLimitExceeded" in why_no_node([], [quota, short()], after(seconds=61)).text
    nothing = Said("Karpenter has said nothing of it")
    assert why_no_node([], [short()], after(seconds=STALE.total_seconds())) == nothing
    assert why_no_node([], [{**karpenter.nominated("workers-a"), "type": "Normal"}], after()) == nothing


def test_a_node_claim_that_is_refused_is_said_with_the_reason() -> None:
    said = why_no_node([karpenter.claim("workers-a", karpenter.REFUSED)], [], after())
    assert said.trouble
    assert said.text.startswith(
        "Karpenter: NodeClaim workers-a: Unauthorized: Error creating fleet request: User is not"
    )


def test_a_node_on_its_way_is_no_trouble_whatever_was_before() -> None:
    absent = karpenter.condition("Registered", "Unknown", "NodeNotFound", "Node not registered with cluster")
    claim = karpenter.claim("workers-a", karpenter.LAUNCHED, absent)
    claim["metadata"]["labels"] = {gpus.INSTANCE_TYPE: "g5.xlarge"}
    assert why_no_node([claim], [short()], after()) == Said(
        "Karpenter: NodeClaim workers-a has an instance, of type g5.xlarge, and its node is not Ready: "
        "Node not registered with cluster"
    )
    untried = karpenter.claim("workers-a", karpenter.UNTRIED)
    assert why_no_node([untried], [], after()) == Said("Karpenter: NodeClaim workers-a waits for an instance")
    assert why_no_node([untried], [short()], after()).text == NO_CAPACITY


def test_a_node_claim_that_is_being_deleted_is_no_node_on_its_way() -> None:
    claim = karpenter.claim("workers-a", karpenter.LAUNCHED)
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert why_no_node([claim], [short()], after()).text == NO_CAPACITY


@dataclass
class Api:
    """What an API server answers, and what it was asked. A path without an answer is not found."""

    answers: dict[str, Any]
    asked: list[tuple[str, dict[str, list[str]], str]] = field(default_factory=list)
    made: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    """Of the program's clock."""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Serve an API, on a clock that passes only while the program sleeps."""
    found = Api({NODES: [], CLAIMS: [], EVENTS: [], CLAIM_EVENTS: []})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            found.asked.append((url.path, parse_qs(url.query), self.headers["Authorization"]))
            answer = found.answers.get(url.path, 404)
            answer = answer() if callable(answer) else answer
            self.respond(*(answer, {}) if isinstance(answer, int) else (200, {"items": answer}), cut=answer == CUT_OFF)

        def do_POST(self) -> None:
            assert urlsplit(self.path).path == EVENTS
            found.made.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status = found.answers.get("record", 201)
            self.respond(status, {})

        def respond(self, status: int, content: Any, *, cut: bool = False) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) + cut))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    (tmp_path / "token").write_text("secret")
    (tmp_path / "namespace").write_text("tidewater-devices")
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: None)  # the server here has no TLS

    def sleep(seconds: float) -> None:
        found.seconds += 45 * seconds

    clock_of(gpus, monkeypatch, monotonic=lambda: found.seconds, sleep=sleep)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(gpus, "Cluster", lambda selector: Cluster(selector, tmp_path, address))
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


def run() -> int:
    return gpus.main([f"--{key}={value}" for key, value in ARGUMENTS.items()])


def good() -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "labels": {gpus.INSTANCE_TYPE: "g5.xlarge"}},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def now_short() -> dict[str, Any]:
    return {**short(), "lastTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def next_of(*answers: list[Any] | int) -> Callable[[], list[Any] | int]:
    """Return a function that gives one answer after the other."""
    rest = iter(answers)
    return lambda: next(rest)


def test_it_asks_for_the_nodes_with_the_labels_and_its_own_token(api: Api) -> None:
    api.answers[NODES] = [good()]
    assert run() == 0
    assert api.asked == [(NODES, {"labelSelector": ["tidewater.dev/node-role=worker"]}, "Bearer secret")]
    assert api.made == []


def test_while_no_node_is_there_pulumi_shows_karpenters_words_and_the_limit(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers |= {NODES: next_of([], [], [], [good()]), CLAIM_EVENTS: [now_short()]}
    assert run() == 0
    (event,) = api.made
    assert event["type"] == "Warning"
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "tidewater-devices",
        "name": "gpu-check",
        "uid": "uid-1",
    }
    assert event["reason"] == "WaitingForNode"
    words = event["message"]
    assert words.startswith("no worker node is Ready; the check of its GPUs waits for one until ")
    assert words.endswith(f" UTC. {NO_CAPACITY}")
    assert capsys.readouterr().out == f"{words}\nevery worker node has nvidia.com/gpu\n"
    asked = {path: query for path, query, _ in api.asked}
    assert asked[CLAIMS] == asked[NODES]
    assert asked[EVENTS] == asked[CLAIM_EVENTS] == {"fieldSelector": ["source=karpenter"]}


def test_a_node_that_is_starting_is_no_warning(api: Api) -> None:
    claim = karpenter.claim("workers-a", karpenter.UNTRIED)
    api.answers |= {NODES: next_of([], [good()]), CLAIMS: [claim]}
    assert run() == 0
    assert [(event["type"], event["message"].rpartition(". ")[2]) for event in api.made] == [
        ("Normal", "Karpenter: NodeClaim workers-a waits for an instance")
    ]


def test_without_a_node_it_ends_at_its_limit_with_a_warning_and_no_error(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers[CLAIM_EVENTS] = [now_short()]
    assert run() == 0
    assert api.seconds == NODE_SECONDS
    last = api.made[-1]
    assert (last["reason"], last["type"]) == ("NoNode", "Warning")
    assert last["message"] == (
        "no worker node became Ready in 15 minutes, so no GPU was checked; the training job is made now, and starts by "
        f"itself when there are nodes. {NO_CAPACITY}"
    )
    assert capsys.readouterr().out.splitlines()[-1] == last["message"]


@pytest.mark.parametrize("answer", [403, 404])
def test_in_a_cluster_without_karpenter_it_waits_too(api: Api, answer: int) -> None:
    api.answers |= {CLAIMS: answer, EVENTS: 403, CLAIM_EVENTS: 403, NODES: next_of([], [good()])}
    assert run() == 0
    (event,) = api.made
    assert event["message"].endswith(" UTC.")
    assert "Karpenter" not in event["message"]


def test_events_that_cannot_be_made_change_nothing(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers |= {NODES: next_of([], [], [good()]), "record": 403}
    assert run() == 0
    assert "no event could be made: HTTP Error 403" in capsys.readouterr().out


def test_nodes_without_gpus_end_it_with_the_sentence_on_stderr(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    bare = {**good(), "status": {**good()["status"], "allocatable": {}}}
    api.answers[NODES] = next_of([], *[[bare]] * 9)
    assert run() == 1
    assert capsys.readouterr().err == "1 worker node is Ready but shows no nvidia.com/gpu (of 1: a; g5.xlarge): help\n"


def test_an_api_server_that_does_not_answer_is_asked_again_until_the_limit(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers[NODES] = 503
    assert run() == 1
    assert api.seconds == NODE_SECONDS
    assert capsys.readouterr().err == "the API server does not answer: HTTP Error 503: Service Unavailable\n"
    api.answers |= {NODES: next_of(503, [], [good()]), CLAIMS: 503}
    assert run() == 0


def test_an_answer_that_is_cut_off_is_asked_for_again(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[NODES] = next_of(CUT_OFF, [good()])
    assert run() == 0
    assert capsys.readouterr().out.startswith("the API server does not answer: broken answer: IncompleteRead(")
