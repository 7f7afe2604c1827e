"""Sends requests to the API server as the user of a connection, and turns what goes wrong into errors.

    http = Http(kubeconfig.load(Access(), os.environ))
    http.object(Request("GET", PODS.path("training", "digits-worker-0"), kind=PODS))

Many threads share one instance and its pool of connections. No published client serves here: lightkube's can neither
ask for tables (the `Accept` header) nor for a pod's own HTTP server nor for OpenAPI, knows no
`client.authentication.k8s.io/v1` and starts one login plug-in per waiting thread; the official one loads a class for
every kind at each start.
"""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import proxy_bypass

import httpx2

from tidewater.contract.tls import accept_eks
from tidewater.kube import errors, login
from tidewater.kube.advice import REACH, advised
from tidewater.kube.cluster import Object
from tidewater.kube.errors import LoginFailed, NoKubeconfig, Unreachable
from tidewater.kube.kinds import Kind, missing
from tidewater.kube.kubeconfig import Connection, Section

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""As long as the API server itself gives a request."""

JSON = "application/json"

_STRANGE = "it does not answer as a Kubernetes API server does"
_UNAUTHORIZED, _NOT_FOUND = 401, 404


@dataclass(frozen=True)
class Request:
    """One request. With its `kind`, a missing definition of that kind is an error of its own."""

    method: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    kind: Kind | None = None


def client(connection: Connection, *, interactive: bool = True) -> httpx2.Client:
    """Return an HTTP client with the TLS settings, the credentials and the proxy of the connection.

    Args:
        connection: the cluster and the user.
        interactive: whether a login plug-in may talk to the user on the terminal.

    Raises:
        NoKubeconfig: a certificate, a key or a value in the kubeconfig is unusable.
    """
    proxy = str(connection.cluster.get("proxy-url") or "")
    try:
        # httpx2 prepares the environment's proxies also for a server that NO_PROXY names; a SOCKS proxy fails there.
        direct = not proxy and bool(proxy_bypass(httpx2.URL(connection.server).host))
        return httpx2.Client(
            base_url=connection.server,
            verify=tls_context(connection.cluster, connection.user),
            auth=login.auth(connection.user, connection.cluster, interactive=interactive),
            headers=login.impersonation(connection.user),
            proxy=proxy or None,
            trust_env=not direct,
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(),  # one connection per followed worker, however many there are
        )
    except (OSError, ValueError, httpx2.InvalidURL) as error:
        raise NoKubeconfig(
            f"context {connection.context} of the kubeconfig can't be used: {error}",
            "Write it again, for EKS with `aws eks update-kubeconfig --name CLUSTER`.",
        ) from None
    except ImportError:
        given = f"proxy-url {proxy} of context {connection.context}" if proxy else "$ALL_PROXY or $HTTPS_PROXY"
        raise NoKubeconfig(
            f"{given} is a SOCKS proxy, for which a package is missing",
            "Install it: pip install socksio. Or name an HTTP proxy.",
        ) from None


class Http:
    """One API server, and the user of one context. Every method raises a `ClusterError`."""

    def __init__(self, connection: Connection, *, interactive: bool = True) -> None:
        self.connection = connection
        self._http = client(connection, interactive=interactive)
        name = connection.cluster.get("tls-server-name")
        self._extensions: dict[str, Any] = {"sni_hostname": str(name)} if name else {}

    def object(self, request: Request) -> Object:
        """Return the JSON object in the answer."""
        try:
            found = json.loads(self.text(request))
        except ValueError:
            raise self.strange() from None
        if not isinstance(found, dict):
            raise self.strange()
        return found

    def text(self, request: Request) -> str:
        """Return the whole answer as text."""
        with self._reached():
            response = self._http.send(self._made(request))
        self._accepted(response, request.kind)
        return response.text

    @contextmanager
    def lines(self, request: Request, quiet_seconds: float | None) -> Generator[Iterator[str]]:
        """Yield the lines of an answer as they come; no line for `quiet_seconds` is an error."""
        made = self._made(request)
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=quiet_seconds)
        made.extensions["timeout"] = timeout.as_dict()
        with self._reached():
            response = self._http.send(made, stream=True)
            try:
                if response.is_error:
                    response.read()
                self._accepted(response, request.kind)
                yield _lines(response)
            finally:
                response.close()

    def strange(self) -> Unreachable:
        """Return the error for an answer that no API server gives."""
        return self._unreachable(_STRANGE)

    def _made(self, request: Request) -> httpx2.Request:
        headers, content = {"Accept": request.accept}, None
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            content = json.dumps(request.body).encode()
        return self._http.build_request(
            request.method,
            request.path,
            params=dict(request.parameters),
            headers=headers,
            content=content,
            extensions=dict(self._extensions),
        )

    @contextmanager
    def _reached(self) -> Generator[None]:
        """Raise Unreachable for whatever goes wrong on the way."""
        try:
            yield
        except httpx2.ConnectTimeout:
            raise self._unreachable(f"no connection within {CONNECT_SECONDS:.0f} s") from None
        except httpx2.TimeoutException:
            raise self._unreachable("the answer takes too long") from None
        except httpx2.TransportError as error:
            raise self._unreachable(str(error) or type(error).__name__) from None

    def _accepted(self, response: httpx2.Response, kind: Kind | None) -> None:
        """Raise what a refusal means."""
        if response.is_success:
            return
        if response.status_code == _UNAUTHORIZED:
            server, context = self.connection.server, self.connection.context
            raise LoginFailed(
                f"the API server {server} does not accept the credentials of context {context}",
                "Log in again, or choose another context.",
                status=_UNAUTHORIZED,
            )
        if response.status_code == _NOT_FOUND and kind is not None and errors.status_of(response.text) is None:
            # A kind that the API server does not know has no server that would make a `Status` object.
            raise missing(kind)
        raise advised(errors.error_of_text(response.status_code, response.text))

    def _unreachable(self, reason: str) -> Unreachable:
        server, context = self.connection.server, self.connection.context
        return Unreachable(f"the API server {server} of context {context} can't be reached: {reason}", REACH)


def _lines(response: httpx2.Response) -> Iterator[str]:
    """Yield the lines of a stream as text, without their ends.

    Not by `iter_lines`: for that one a line also ends with a carriage return, as in a progress bar, and with U+0085 or
    U+2028, which JSON may hold.
    """
    rest: list[bytes] = []
    for chunk in response.iter_bytes():
        *complete, last = chunk.split(b"\n")
        for line in complete:
            yield _text(b"".join((*rest, line)))
            rest = []
        rest.append(last)
    if end := b"".join(rest):
        yield _text(end)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").removesuffix("\r")


def tls_context(cluster: Section, user: Section) -> ssl.SSLContext:
    """Return the TLS settings of a kubeconfig's cluster and user. Their file names are absolute.

    Raises:
        OSError, ValueError: a certificate or a key can't be read.
    """
    if cluster.get("certificate-authority"):
        made = ssl.create_default_context(cafile=cluster["certificate-authority"])
    elif cluster.get("certificate-authority-data"):
        made = ssl.create_default_context(cadata=_decoded(cluster, "certificate-authority-data").decode())
    else:
        made = httpx2.create_ssl_context(verify=not cluster.get("insecure-skip-tls-verify"))
    accept_eks(made)
    with ExitStack() as files:
        shown = [_file(user, key, files) for key in ("client-certificate", "client-key")]
        if any(shown):
            made.load_cert_chain(shown[0] or "", shown[1] or None)
    return made


def _file(user: Section, key: str, files: ExitStack) -> str:
    """Return the name of a file with a certificate or a key, since Python's ssl module reads no other; empty: none."""
    if not user.get(f"{key}-data"):
        return str(user.get(key) or "")
    path = Path(files.enter_context(tempfile.TemporaryDirectory()), key)  # open to this user alone
    path.write_bytes(_decoded(user, f"{key}-data"))
    return str(path)


def _decoded(section: Section, key: str) -> bytes:
    """Return what is written in base64.

    Raises:
        ValueError: it isn't, or is nothing: with an empty authority, Python would trust every public one.
    """
    found = base64.b64decode("".join(str(section[key]).split()), validate=True)
    if not found:
        raise ValueError(f"{key} is empty")
    return found
