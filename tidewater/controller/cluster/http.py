"""A ``Cluster`` over HTTP.

    server = ApiServer(connect())
    pods = await server.list(Source(PODS))
    await server.close()

lightkube reads the configuration (the pod's service account, else KUBECONFIG, else ``~/.kube/config``) and
authenticates: it reads the service account's token again when the kubelet has renewed it, and runs the kubeconfig's
credential plug-in. The requests are sent here and not by lightkube's client, because that one can neither ask for
bookmarks, nor delete with a precondition, nor notice that the connection of a watch is dead.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2
import msgspec
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError

from tidewater.contract.tls import accept_eks
from tidewater.controller.cluster.client import FIELD_MANAGER, Manifest, Page, Ref, Source, WatchEvent
from tidewater.kube.errors import ClusterError, Unreachable, error_of_status, error_of_text
from tidewater.kube.kinds import Kind

T = TypeVar("T")

PAGE = 500
"""Objects in one part of a list."""

TIMEOUT_SECONDS = 10.0
"""Limit for an answer to begin, and for each part of it."""

WATCH_SECONDS = (240, 480)
"""A watch asks the API server to end it after a time between these, so that watches don't all end together."""

SILENCE_SECONDS = 90.0
"""A watch that receives nothing for longer is dead: the API server sends a bookmark about every minute.
https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks"""

_IDLE_SECONDS = 60.0
_MERGE_PATCH = "application/merge-patch+json"
_JSON = "application/json"
_ERROR = 400

Observe = Callable[[str, str, int, float], None]
"""Called after each request with verb, plural, HTTP status (0: no answer) and seconds."""


def connect(connections: int = 64) -> httpx2.AsyncClient:
    """Return an HTTP client for the API server that the environment names.

    Raises:
        ConfigError: There is no configuration, or it lacks something.
    """
    config = KubeConfig.from_env().get()
    if config is None or config.user is None:
        raise ConfigError("the kubeconfig's current context names no user; see `kubectl config view --minify`")
    options = ConnectionParams(timeout=httpx2.Timeout(TIMEOUT_SECONDS)).httpx_params(config)
    accept_eks(options["verify"])
    limits = httpx2.Limits(max_keepalive_connections=connections, keepalive_expiry=_IDLE_SECONDS)
    # Compressed answers would cost the API server more than the network between the two gains.
    headers = {"Accept": _JSON, "Accept-Encoding": "identity", "User-Agent": FIELD_MANAGER}
    return httpx2.AsyncClient(limits=limits, headers=headers, **options)


class _ListMeta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[dict[str, Any]] | None = None


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any]


_list_decoder = msgspec.json.Decoder(_List)
_event_decoder = msgspec.json.Decoder(_Event)


@dataclass(frozen=True)
class _Request:
    """A request, with the verb under which Kubernetes authorizes and audits it."""

    verb: str
    method: str
    kind: Kind
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: Manifest | None = None
    content_type: str = _JSON

    def options(self) -> dict[str, Any]:
        """Return the arguments of httpx2's request functions."""
        content = None if self.body is None else msgspec.json.encode(self.body)
        headers = None if self.body is None else {"Content-Type": self.content_type}
        return {
            "method": self.method,
            "url": self.path,
            "params": self.params,
            "content": content,
            "headers": headers,
        }


class ApiServer:
    """A Kubernetes API server, see ``client.Cluster``."""

    def __init__(self, http: httpx2.AsyncClient, observe: Observe = lambda verb, plural, status, seconds: None) -> None:
        self._http = http
        self._observe = observe

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def list(self, source: Source, token: str = "") -> Page:
        """See ``Cluster.list``."""
        params = {"limit": str(PAGE), **_selected(source), **({"continue": token} if token else {})}
        path = source.kind.path(source.namespace)
        found = await self._send(_Request("list", "GET", source.kind, path, params), _list_decoder.decode)
        items = found.items or []
        for item in items:  # the items of a list don't say what they are
            item.setdefault("apiVersion", source.kind.api_version)
            item.setdefault("kind", source.kind.kind)
        return Page(items, found.metadata.version, found.metadata.token)

    async def watch(self, source: Source, version: str) -> AsyncGenerator[WatchEvent, None]:
        """See ``Cluster.watch``."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            **({"resourceVersion": version} if version else {}),
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
            **_selected(source),
        }
        request = _Request("watch", "GET", source.kind, source.kind.path(source.namespace), params)
        timeout = httpx2.Timeout(TIMEOUT_SECONDS, read=SILENCE_SECONDS)
        with self._observed(request) as observed:
            async with self._http.stream(**request.options(), timeout=timeout) as response:
                observed.status = response.status_code
                if response.status_code >= _ERROR:
                    raise _failure(response, await response.aread())
                async with contextlib.aclosing(_lines(response)) as lines:
                    async for line in lines:
                        event = _event_decoder.decode(line)
                        if event.type == "ERROR":
                            raise error_of_status(int(event.object.get("code", 500)), event.object)
                        yield WatchEvent(event.type, event.object)

    async def get(self, ref: Ref) -> Manifest:
        """See ``Cluster.get``."""
        return await self._send(_Request("get", "GET", ref.kind, ref.path), _object)

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """See ``Cluster.create``."""
        path = kind.path(manifest["metadata"].get("namespace"))
        return await self._send(_Request("create", "POST", kind, path, _OWNER, manifest), _object)

    async def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """See ``Cluster.replace``."""
        meta = manifest["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"])
        return await self._send(_Request("update", "PUT", kind, path, _OWNER, manifest), _object)

    async def patch(self, ref: Ref, change: Manifest, subresource: str | None = None) -> Manifest:
        """See ``Cluster.patch``."""
        path = ref.kind.path(ref.namespace, ref.name, subresource)
        request = _Request("patch", "PATCH", ref.kind, path, _OWNER, change, _MERGE_PATCH)
        return await self._send(request, _object)

    async def delete(self, ref: Ref, *, uid: str, grace: int | None = None) -> Manifest | None:
        """See ``Cluster.delete``."""
        options: Manifest = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        found = await self._send(_Request("delete", "DELETE", ref.kind, ref.path, {}, options), _object)
        return None if found.get("kind") == "Status" else found

    async def _send(self, request: _Request, read: Callable[[bytes], T]) -> T:
        """Return the body of the answer as `read` returns it; raise what the answer's status means."""
        with self._observed(request) as observed:
            response = await self._http.request(**request.options())
            observed.status = response.status_code
            if response.status_code >= _ERROR:
                raise _failure(response, response.content)
            return read(response.content)

    @contextlib.contextmanager
    def _observed(self, request: _Request) -> Iterator[_Observed]:
        """Report a request when it has ended, and turn the libraries' errors into Unreachable."""
        observed, began = _Observed(), time.monotonic()
        try:
            yield observed
        except (httpx2.TransportError, ConfigError, msgspec.DecodeError) as error:
            detail = str(error) or type(error).__name__
            raise Unreachable(f"{request.method} {request.path}: {detail}") from error
        finally:
            self._observe(request.verb, request.kind.plural, observed.status, time.monotonic() - began)


@dataclass
class _Observed:
    """The status of an answer, 0 until there is one."""

    status: int = 0


_OWNER = {"fieldManager": FIELD_MANAGER}


def _selected(source: Source) -> dict[str, str]:
    selectors = {"labelSelector": source.selector, "fieldSelector": source.fields}
    return {name: selector for name, selector in selectors.items() if selector}


def _object(body: bytes) -> Manifest:
    found: Manifest = msgspec.json.decode(body, type=dict[str, Any])
    return found


def _failure(response: httpx2.Response, body: bytes) -> ClusterError:
    """Return the error for an answer with a status of 400 or more."""
    error, after = (
        error_of_text(response.status_code, body.decode(errors="replace")),
        response.headers.get("Retry-After", ""),
    )
    error.retry_after = float(after) if after.isdigit() else 0.0
    return error


async def _lines(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream that aren't empty. httpx2's own function takes longer: it decodes them to text."""
    rest: list[bytes] = []
    async with contextlib.aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            *complete, last = chunk.split(b"\n")
            for line in complete:
                whole, rest = b"".join((*rest, line)), []
                if whole:
                    yield whole
            rest.append(last)
