"""What is sent to the API server and what its answers mean, over httpx2's transport for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
import pytest
from lightkube.core.exceptions import ConfigError

from tests import tls
from tidewater.controller.cluster.client import Ref, Source, WatchEvent
from tidewater.controller.cluster.http import ApiServer, connect
from tidewater.elasticjob.names import JOBS
from tidewater.kube import errors
from tidewater.kube.kinds import EVENTS, LEASES, NODES, PODS

Handler = Callable[[httpx2.Request], httpx2.Response]
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"}}


class Server:
    """Answers requests and remembers them."""

    def __init__(self, answer: Handler) -> None:
        self.requests: list[httpx2.Request] = []
        self.observed: list[tuple[str, str, int]] = []
        self._answer = answer
        transport = httpx2.MockTransport(self._handle)
        http = httpx2.AsyncClient(transport=transport, base_url="https://api:6443")
        self.api = ApiServer(http, lambda verb, plural, status, seconds: self.observed.append((verb, plural, status)))

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return self._answer(request)

    def run(self, act: Callable[[ApiServer], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            try:
                return await act(self.api)
            finally:
                await self.api.close()

        return asyncio.run(main())

    @property
    def sent(self) -> tuple[str, str, dict[str, str], Any]:
        """Method, path, parameters and body of the only request."""
        (request,) = self.requests
        body = json.loads(request.content) if request.content else None
        return request.method, request.url.path, dict(request.url.params), body


def answering(body: Any, status: int = 200) -> Server:
    return Server(lambda request: httpx2.Response(status, json=body))


def test_a_created_object_is_sent_with_its_field_manager_and_returned() -> None:
    server = answering(POD, 201)
    assert server.run(lambda api: api.create(PODS, POD)) == POD
    assert server.sent == ("POST", "/api/v1/namespaces/ns/pods", {"fieldManager": "elasticjob-controller"}, POD)
    assert server.observed == [("create", "pods", 201)]


def test_a_status_is_merged_on_its_subresource() -> None:
    server = answering({})
    change = {"metadata": {"resourceVersion": "7"}, "status": {"replicas": 2}}
    server.run(lambda api: api.patch(Ref(JOBS, "ns", "imagenet"), change, "status"))
    method, path, _, body = server.sent
    assert (method, path) == ("PATCH", "/apis/elastic.pytorch.org/v1alpha1/namespaces/ns/elasticjobs/imagenet/status")
    assert body == change
    assert server.requests[0].headers["Content-Type"] == "application/merge-patch+json"


def test_a_name_is_one_segment_of_the_path_whatever_it_holds() -> None:
    server = answering(POD)
    server.run(lambda api: api.delete(Ref(PODS, "n/s", "../p?x#y"), uid="u"))
    (request,) = server.requests
    assert request.url.raw_path == b"/api/v1/namespaces/n%2Fs/pods/..%2Fp%3Fx%23y"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_lead_to_the_collection_is_not_sent(name: str) -> None:
    server = answering(POD)
    for act in (
        lambda api: api.delete(Ref(PODS, "ns", name), uid="u"),
        lambda api: api.get(Ref(PODS, "ns", name)),
        lambda api: api.patch(Ref(PODS, "ns", name), {}, "status"),
        lambda api: api.replace(PODS, {"metadata": {"namespace": "ns", "name": name}}),
    ):
        server = answering(POD)
        with pytest.raises(errors.Refused, match=f"'{name}' is no name of"):
            server.run(act)
        assert server.requests == []


def test_a_namespace_that_would_lead_elsewhere_is_not_sent() -> None:
    server = answering(POD)
    with pytest.raises(errors.Refused, match=r"'\.\.' is no name of a Namespace"):
        server.run(lambda api: api.delete(Ref(PODS, "..", "p"), uid="u"))
    assert server.requests == []


def test_a_lease_is_replaced() -> None:
    lease = {"metadata": {"name": "c", "namespace": "ns", "resourceVersion": "3"}}
    server = answering(lease)
    server.run(lambda api: api.replace(LEASES, lease))
    assert server.sent[:2] == ("PUT", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/c")


@pytest.mark.parametrize("grace", [None, 0])
def test_a_deletion_names_the_uid(grace: int | None) -> None:
    server = answering(POD)
    assert server.run(lambda api: api.delete(Ref(PODS, "ns", "p"), uid="u", grace=grace)) == POD
    method, path, _, body = server.sent
    assert (method, path) == ("DELETE", "/api/v1/namespaces/ns/pods/p")
    assert body["preconditions"] == {"uid": "u"}
    assert body.get("gracePeriodSeconds") == grace


def test_a_deletion_that_is_answered_by_a_status_returns_nothing() -> None:
    server = answering({"kind": "Status", "status": "Success"})
    assert server.run(lambda api: api.delete(Ref(PODS, "ns", "p"), uid="u")) is None


def test_a_part_of_a_list_names_the_next() -> None:
    server = answering({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [{"metadata": {}}]})
    page = server.run(lambda api: api.list(Source(NODES), "now"))
    assert (page.version, page.token) == ("9", "more")
    assert page.items == [{"metadata": {}, "apiVersion": "v1", "kind": "Node"}]
    method, path, params, _ = server.sent
    assert (method, path, params["continue"], params["limit"]) == ("GET", "/api/v1/nodes", "now", "500")


def test_an_empty_list_has_no_items() -> None:
    server = answering({"metadata": {"resourceVersion": "9"}, "items": None})
    page = server.run(lambda api: api.list(Source(PODS, "ns", "a=b")))
    assert (page.items, page.token) == ([], "")
    assert server.sent[1:3] == ("/api/v1/namespaces/ns/pods", {"limit": "500", "labelSelector": "a=b"})


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        pytest.param(400, {"message": "what?"}, errors.Invalid, id="bad request"),
        pytest.param(401, {"reason": "Unauthorized"}, errors.LoginFailed, id="unauthorized"),
        pytest.param(403, {"reason": "Forbidden", "message": "exceeded quota"}, errors.Forbidden, id="quota"),
        pytest.param(404, {"reason": "NotFound"}, errors.NotFound, id="missing"),
        pytest.param(409, {"reason": "AlreadyExists"}, errors.Exists, id="exists"),
        pytest.param(409, {"reason": "Conflict"}, errors.Conflict, id="conflict"),
        pytest.param(410, {"reason": "Expired"}, errors.Gone, id="expired"),
        pytest.param(422, {"reason": "Invalid", "message": "spec.x: wrong"}, errors.Invalid, id="invalid"),
        pytest.param(429, {"reason": "TooManyRequests"}, errors.Busy, id="too many"),
        pytest.param(500, {"reason": "InternalError"}, errors.Busy, id="internal"),
        pytest.param(504, {"reason": "Timeout"}, errors.Busy, id="timeout"),
    ],
)
def test_an_answer_means_what_the_caller_can_do(code: int, status: dict[str, str], error: type[Exception]) -> None:
    server = answering({"kind": "Status", **status}, code)
    with pytest.raises(error) as raised:
        server.run(lambda api: api.get(Ref(PODS, "ns", "p")))
    assert type(raised.value) is error
    assert raised.value.status == code  # type: ignore[attr-defined]
    assert status.get("message", "") in str(raised.value)
    assert server.observed == [("get", "pods", code)]


def test_an_answer_that_is_no_status_is_still_an_error() -> None:
    server = Server(
        lambda request: httpx2.Response(503, content=b"upstream connect error", headers={"Retry-After": "3"})
    )
    with pytest.raises(errors.Unavailable, match="upstream connect error") as raised:
        server.run(lambda api: api.get(Ref(PODS, "ns", "p")))
    assert raised.value.retry_after == 3.0


@pytest.mark.parametrize("error", [httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow")])
def test_no_answer_is_unavailable(error: Exception) -> None:
    def fail(request: httpx2.Request) -> httpx2.Response:
        raise error

    server = Server(fail)
    with pytest.raises(errors.Unavailable, match="pods/p"):
        server.run(lambda api: api.get(Ref(PODS, "ns", "p")))
    assert server.observed == [("get", "pods", 0)]


async def events(api: ApiServer) -> list[WatchEvent]:
    return [event async for event in api.watch(Source(PODS, selector="a=b"), "5")]


def streaming(*chunks: bytes, error: Exception | None = None) -> Server:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        if error is not None:
            raise error

    return Server(lambda request: httpx2.Response(200, content=stream()))


def test_events_of_a_watch_are_read_however_the_network_cuts_them() -> None:
    text = b"".join(
        json.dumps({"type": kind, "object": {"metadata": {"name": name}}}).encode() + b"\n"
        for kind, name in (("ADDED", "a"), ("MODIFIED", "b"), ("BOOKMARK", "c"))
    )
    for size in (1, 7, 50, len(text)):
        server = streaming(*(text[start : start + size] for start in range(0, len(text), size)))
        found = server.run(events)
        assert [(event.type, event.object["metadata"]["name"]) for event in found] == [
            ("ADDED", "a"),
            ("MODIFIED", "b"),
            ("BOOKMARK", "c"),
        ]


def test_an_event_of_a_watch_ends_with_a_newline_only() -> None:
    message = "a\x85b\u2028c"
    event = json.dumps({"type": "ADDED", "object": {"message": message}}, ensure_ascii=False)
    server = streaming(event.encode() + b"\n")
    (found,) = server.run(events)
    assert found.object == {"message": message}


def test_a_watch_asks_for_bookmarks_and_for_an_end() -> None:
    server = streaming()
    assert server.run(events) == []
    params = server.sent[2]
    assert params["watch"] == params["allowWatchBookmarks"] == "true"
    assert (params["resourceVersion"], params["labelSelector"]) == ("5", "a=b")
    assert 240 <= int(params["timeoutSeconds"]) <= 480


def test_a_watch_without_a_version_begins_with_what_exists() -> None:
    async def watched(api: ApiServer) -> list[WatchEvent]:
        return [event async for event in api.watch(Source(EVENTS, fields="source=karpenter"), "")]

    server = streaming()
    assert server.run(watched) == []
    assert "resourceVersion" not in server.sent[2]
    assert "labelSelector" not in server.sent[2]
    assert server.sent[2]["fieldSelector"] == "source=karpenter"


def test_an_error_event_ends_the_watch_with_what_it_means() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    server = streaming(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
    with pytest.raises(errors.Gone, match="too old"):
        server.run(events)


def test_a_watch_that_is_silent_for_too_long_is_an_error() -> None:
    server = streaming(error=httpx2.ReadTimeout("silence"))
    with pytest.raises(errors.Unavailable, match="silence"):
        server.run(events)


def test_a_watch_that_is_refused_is_an_error() -> None:
    server = answering({"kind": "Status", "reason": "Forbidden", "message": "pods is forbidden"}, 403)
    with pytest.raises(errors.Refused, match="forbidden"):
        server.run(events)


def test_a_watch_with_nonsense_in_it_is_tried_again() -> None:
    with pytest.raises(errors.Unavailable):
        streaming(b"<html>\n").run(events)


def test_an_answer_with_nonsense_in_it_is_tried_again() -> None:
    server = Server(lambda request: httpx2.Response(200, content=b"<html>"))
    with pytest.raises(errors.Unavailable):
        server.run(lambda api: api.list(Source(PODS)))


def kubeconfig(folder: Path, server: str = "https://api:6443", ca: str = "", **context: str) -> Path:
    """Write a kubeconfig with a cluster k and a user u."""
    trust = {"certificate-authority": ca} if ca else {"insecure-skip-tls-verify": True}
    cluster = {"server": server, **trust}
    made = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", **context}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(made))
    return path


def test_the_kubeconfig_says_where_the_api_server_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, user="u")))
    client = connect()
    assert client.base_url.host == "api"
    assert client.auth is not None
    asyncio.run(client.aclose())


def test_a_kubeconfig_without_a_user_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path)))
    with pytest.raises(ConfigError, match="names no user"):
        connect()


def asked_over_tls(folder: Path, url: str, ca: Path) -> Any:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBECONFIG", str(kubeconfig(folder, url, str(ca), user="u")))

        async def main() -> Any:
            api = ApiServer(connect())
            try:
                return await api.get(Ref(NODES, None, "n"))
            finally:
                await api.close()

        return asyncio.run(main())


def test_the_certificates_of_eks_are_accepted_on_every_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls.strict(monkeypatch)
    with tls.serving(tmp_path) as (url, ca):
        assert asked_over_tls(tmp_path, url, ca) == {}


def test_a_certificate_is_still_checked(tmp_path: Path) -> None:
    with tls.serving(tmp_path, address="127.0.0.2") as (url, ca), pytest.raises(errors.Unavailable, match="not valid"):
        asked_over_tls(tmp_path, url, ca)
