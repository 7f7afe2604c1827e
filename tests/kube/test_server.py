"""The requests that `Server` sends and what it makes of the answers, over a real connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import LogOptions, Selection
from tidewater.kube.errors import (
    Busy,
    ClusterError,
    Exists,
    Forbidden,
    Gone,
    Invalid,
    LoginFailed,
    MissingKind,
    NotFound,
    Unreachable,
)
from tidewater.kube.kinds import NODES, PODS
from tidewater.kube.kubeconfig import Connection
from tidewater.kube.server import Server


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Api:
    """A server that gives prepared answers and keeps the requests."""

    answers: list[tuple[int, str]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    address: str = ""
    cut: bool = False
    """Close the connection in the middle of the next answer."""

    def says(self, value: Any, code: int = 200) -> None:
        """Prepare an answer."""
        self.answers.append((code, value if isinstance(value, str) else json.dumps(value)))

    def refuses(self, code: int, reason: str, message: str) -> None:
        """Prepare a refusal."""
        self.says({"kind": "Status", "code": code, "reason": reason, "message": message}, code)


def handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            url = urlsplit(self.path)
            asked = Asked(
                self.command, url.path, dict(parse_qsl(url.query)), dict(self.headers), json.loads(body or "null")
            )
            api.asked.append(asked)
            code, text = api.answers.pop(0)
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            sent = text.encode(errors="surrogateescape")
            self.send_header("Content-Length", str(len(sent) + (1 if api.cut else 0)))
            self.end_headers()
            self.wfile.write(sent)
            self.close_connection = api.cut

        def log_message(self, format: str, *args: Any) -> None: ...

    for verb in ("GET", "POST", "PATCH", "DELETE"):
        setattr(Handler, f"do_{verb}", Handler.answer)
    return Handler


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(found))
    server.daemon_threads = True
    found.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server(api: Api) -> Server:
    return Server(Connection("c", "training", {"server": api.address}, {"token": "secret"}))


def test_an_object_is_asked_for_with_the_users_token(api: Api, server: Server) -> None:
    api.says({"metadata": {"name": "digits"}})
    assert server.get(JOBS, "digits") == {"metadata": {"name": "digits"}}
    (asked,) = api.asked
    assert asked.path == "/apis/elastic.pytorch.org/v1alpha1/namespaces/training/elasticjobs/digits"
    assert asked.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("selection", "path"),
    [
        (Selection(), "/api/v1/namespaces/training/pods"),
        (Selection("other"), "/api/v1/namespaces/other/pods"),
        (Selection("*"), "/api/v1/pods"),
    ],
    ids=["default", "named", "all"],
)
def test_a_namespace_is_part_of_the_path(api: Api, server: Server, selection: Selection, path: str) -> None:
    api.says({"metadata": {}, "items": None})
    assert server.list(PODS, selection).items == []
    assert api.asked[0].path == path


@pytest.mark.parametrize("name", ["digits#old", "a?b", "../../other/elasticjobs/digits", "digits\r", "ä", "%2e"])
def test_a_name_is_one_segment_of_the_path_whatever_it_holds(api: Api, server: Server, name: str) -> None:
    api.says({})
    server.delete(JOBS, name, namespace=name)
    (asked,) = api.asked
    assert (list(asked.query), asked.path.count("/")) == (["propagationPolicy"], 7)
    assert [unquote(part) for part in asked.path.split("/")[5:]] == [name, "elasticjobs", name]


@pytest.mark.parametrize("name", ["", ".", ".."])
@pytest.mark.parametrize(
    "ask",
    [
        lambda server, name: server.get(JOBS, name),
        lambda server, name: server.delete(JOBS, name),
        lambda server, name: server.patch(JOBS, name, {}),
        lambda server, name: server.patch(JOBS, name, {}, subresource="scale"),
        lambda server, name: list(server.log(name, LogOptions())),
        lambda server, name: server.proxy(name, 9464, "/metrics"),
    ],
    ids=["get", "delete", "patch", "scale", "log", "proxy"],
)
def test_a_name_that_would_lead_to_the_collection_is_not_sent(
    api: Api, server: Server, ask: Callable[[Server, str], Any], name: str
) -> None:
    with pytest.raises(ClusterError, match=f"'{name}' is no name of"):
        ask(server, name)
    assert api.asked == []


def test_a_namespace_that_would_lead_elsewhere_is_not_sent(api: Api, server: Server) -> None:
    with pytest.raises(ClusterError, match=r"'\.\.' is no name of a Namespace"):
        server.delete(JOBS, "digits", namespace="..")
    assert api.asked == []


def test_nodes_have_no_namespace(api: Api, server: Server) -> None:
    api.says({"metadata": {}, "items": []})
    server.list(NODES)
    assert api.asked[0].path == "/api/v1/nodes"


def test_a_list_is_read_to_its_last_page(api: Api, server: Server) -> None:
    api.says({"metadata": {"continue": "more"}, "items": [{"a": 1}]})
    api.says({"metadata": {"resourceVersion": "7"}, "items": [{"a": 2}]})
    found = server.list(PODS, Selection(labels="x=y"))
    assert (found.items, found.version) == ([{"a": 1}, {"a": 2}], "7")
    assert [each.query.get("continue") for each in api.asked] == [None, "more"]
    assert api.asked[1].query["labelSelector"] == "x=y"


def test_a_table_has_the_columns_that_kubectl_shows(api: Api, server: Server) -> None:
    api.says(
        {
            "columnDefinitions": [{"name": "Name"}, {"name": "Wide", "priority": 1}, {"name": "Active"}],
            "rows": [{"cells": ["digits", "w", None], "object": {"metadata": {"name": "digits", "namespace": "t"}}}],
        }
    )
    found = server.table(JOBS)
    assert (found.columns, found.rows, found.names) == (
        ["Name", "Active"],
        [["digits", "<none>"]],
        [("t", "digits")],
    )
    assert api.asked[0].headers["Accept"].startswith("application/json;as=Table;")


def test_create_is_strict_about_unknown_fields(api: Api, server: Server) -> None:
    api.says({"metadata": {}})
    server.create(JOBS, {"metadata": {"name": "a", "namespace": "other"}})
    (asked,) = api.asked
    assert (asked.method, asked.path.split("/")[5]) == ("POST", "other")
    assert asked.query == {"fieldManager": "tidewater", "fieldValidation": "Strict"}
    assert asked.body == {"metadata": {"name": "a", "namespace": "other"}}


def test_scale_is_a_patch_of_the_subresource(api: Api, server: Server) -> None:
    api.says({})
    server.patch(JOBS, "digits", {"spec": {"replicas": 3}}, subresource="scale")
    (asked,) = api.asked
    assert asked.path.endswith("/elasticjobs/digits/scale")
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.body == {"spec": {"replicas": 3}}


def test_a_watch_yields_changes_and_ends_with_the_answer(api: Api, server: Server) -> None:
    api.says('{"type": "ADDED", "object": {"a": 1}}\n{"type": "DELETED", "object": {"a": 1}}\n')
    found = list(server.watch(PODS, Selection(fields="metadata.name=a"), "5", 30))
    assert [change.type for change in found] == ["ADDED", "DELETED"]
    assert api.asked[0].query == {
        "watch": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "30",
        "fieldSelector": "metadata.name=a",
    }


def test_a_watch_from_a_version_that_is_too_old_is_expired(api: Api, server: Server) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    api.says(json.dumps({"type": "ERROR", "object": status}))
    with pytest.raises(Gone):
        list(server.watch(PODS, Selection(), "5", 30))


def test_a_stream_that_breaks_off_is_unreachable(api: Api, server: Server) -> None:
    api.says("a\nb\n")
    api.cut = True
    lines: list[str] = []
    with pytest.raises(Unreachable):
        lines.extend(server.log("p", LogOptions()))


# What else str.splitlines takes for the end of a line.
ODD_ENDS = ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"]


@pytest.mark.parametrize("end", ODD_ENDS, ids=ascii)
def test_a_line_of_a_log_ends_with_a_newline_only(api: Api, server: Server, end: str) -> None:
    api.says(f"10%{end}20%\n\n{end}30%")
    assert list(server.log("p", LogOptions())) == [f"10%{end}20%", "", f"{end}30%"]


def test_the_line_ends_of_windows_are_removed(api: Api, server: Server) -> None:
    api.says("one\r\ntwo\r\n")
    assert list(server.log("p", LogOptions())) == ["one", "two"]


def test_a_log_that_is_not_utf8_is_read_all_the_same(api: Api, server: Server) -> None:
    api.says("ä\n" * 40_000)  # more than one chunk: some end in the middle of a letter
    assert set(server.log("p", LogOptions())) == {"ä"}
    api.says("\udcff\n")
    assert list(server.log("p", LogOptions())) == ["\ufffd"]


@pytest.mark.parametrize("end", ["\x85", "\u2028"], ids=ascii)
def test_an_event_of_a_watch_ends_with_a_newline_only(api: Api, server: Server, end: str) -> None:
    api.says(json.dumps({"type": "ADDED", "object": {"message": f"a{end}b"}}, ensure_ascii=False) + "\n")
    (change,) = server.watch(PODS, Selection(), "5", 30)
    assert change.object == {"message": f"a{end}b"}


def test_a_log_is_asked_for_with_its_options(api: Api, server: Server) -> None:
    api.says("one\ntwo\n")
    options = LogOptions(container="c", follow=True, tail=0, since_seconds=60, timestamps=True)
    assert list(server.log("p", options)) == ["one", "two"]
    (asked,) = api.asked
    assert asked.path == "/api/v1/namespaces/training/pods/p/log"
    assert asked.query == {
        "container": "c",
        "follow": "true",
        "timestamps": "true",
        "tailLines": "0",
        "sinceSeconds": "60",
    }


def test_a_pods_own_server_is_reached_through_the_api_server(api: Api, server: Server) -> None:
    api.says("metrics")
    assert server.proxy("p", 9464, "/metrics") == "metrics"
    assert api.asked[0].path == "/api/v1/namespaces/training/pods/p:9464/proxy/metrics"


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (404, "NotFound", NotFound),
        (403, "Forbidden", Forbidden),
        (409, "AlreadyExists", Exists),
        (422, "Invalid", Invalid),
        (400, "BadRequest", Invalid),
        (410, "Expired", Gone),
        (500, "InternalError", Busy),
    ],
)
def test_a_refusal_keeps_the_servers_sentence(
    api: Api, server: Server, code: int, reason: str, expected: type[ClusterError]
) -> None:
    api.refuses(code, reason, "the server's own sentence")
    with pytest.raises(expected, match="the server's own sentence") as caught:
        server.get(JOBS, "digits")
    assert type(caught.value) is expected


def test_a_kind_that_the_server_does_not_know_is_missing(api: Api, server: Server) -> None:
    api.says("404 page not found\n", 404)
    with pytest.raises(MissingKind, match="this cluster has no ElasticJob") as caught:
        server.list(JOBS)
    assert caught.value.remedy == "Install it: tidewater install | kubectl apply -f -"


def test_a_namespace_that_does_not_exist_says_what_to_do(api: Api, server: Server) -> None:
    api.refuses(404, "NotFound", 'namespaces "x" not found')
    with pytest.raises(NotFound) as caught:
        server.create(JOBS, {"metadata": {"name": "a"}})
    assert "kubectl create namespace" in caught.value.remedy


def test_credentials_that_are_not_accepted_name_the_context(api: Api, server: Server) -> None:
    api.refuses(401, "Unauthorized", "Unauthorized")
    with pytest.raises(LoginFailed, match="does not accept the credentials of context c"):
        server.get(JOBS, "digits")


@pytest.mark.parametrize(
    "ask",
    [
        lambda server: server.get(JOBS, "a"),
        lambda server: list(server.watch(PODS, Selection(), "1", 1)),
        lambda server: list(server.log("p", LogOptions())),
        lambda server: server.read("/version"),
    ],
    ids=["get", "watch", "log", "read"],
)
def test_a_server_that_is_not_there_is_unreachable(ask: Callable[[Server], Any]) -> None:
    server = Server(Connection("c", "training", {"server": "http://127.0.0.1:1"}))
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1 of context c can't be reached"):
        ask(server)


@pytest.mark.parametrize("text", ["<html>", "[]", '"a"'])
def test_something_else_than_an_api_server_is_unreachable(api: Api, server: Server, text: str) -> None:
    api.says(text)
    with pytest.raises(Unreachable, match="does not answer as a Kubernetes API server"):
        server.get(JOBS, "a")
    api.says(text)
    with pytest.raises(Unreachable, match="does not answer as a Kubernetes API server"):
        list(server.watch(PODS, Selection(), "1", 1))
