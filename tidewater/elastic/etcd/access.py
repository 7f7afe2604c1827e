"""How to reach etcd: address, TLS files, user and password; and the error messages when that fails.

    access = Access.of(user=environ.get("…"), password=environ.get("…"), cacert="ca.pem", cert="", key="")
    store = EtcdStore(("https://etcd-0:2379",), access=access)

The clocks of the machines may differ. Only etcd measures leases and assigns revisions, and no code compares times of
two machines. Only TLS uses the date, for the validity of certificates.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tidewater.elastic.errors import ConfigError, Refused, StoreError

_TOKEN_IS_OLD = ("invalid auth token", "revision of auth store is old")
_ANSWERS = (
    ("user name is empty", "it wants a user and a password"),
    ("authentication failed", "user or password is wrong"),
    ("permission denied", "the user may not do this: grant its role readwrite on the prefix /tidewater/"),
    ("HTTP request to an HTTPS server", "it speaks TLS: write https:// instead of http://"),
)


@dataclass(frozen=True)
class Access:
    """The credentials for etcd; none by default."""

    user: str = ""
    password: str = field(default="", repr=False)
    context: ssl.SSLContext | None = None
    """For ``https://``; None means the system's authorities and no client certificate."""

    @classmethod
    def of(cls, *, user: str = "", password: str = "", cacert: str = "", cert: str = "", key: str = "") -> Access:
        """Return the access. Raise ConfigError that names what is missing, or the file that can't be used."""
        if bool(user) != bool(password):
            raise ConfigError("etcd's user and password belong together: give both or none")
        if bool(cert) != bool(key):
            raise ConfigError("--etcd-cert and --etcd-key belong together: give both or none")
        if not (cacert or cert):
            return cls(user, password)
        return cls(user, password, tls_context(cacert, cert, key, option="--etcd-{} {}"))


def tls_context(cacert: str, cert: str, key: str, *, option: str) -> ssl.SSLContext:
    """Return the TLS context. An empty ``cacert`` means the system's authorities, an empty ``cert`` none.

    Raise ConfigError that names the wrong file with ``option``, a format for an option's name and its value.
    """
    try:
        context = ssl.create_default_context(cafile=cacert or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{option.format('cacert', cacert)} cannot be used: {error}") from error
    try:
        if cert:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        both = f"{option.format('cert', cert)} with {option.format('key', key)}"
        raise ConfigError(f"{both} cannot be used: {error}") from error
    return context


@dataclass(frozen=True)
class Endpoint:
    """One client URL of etcd."""

    url: str
    secure: bool
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Return the endpoint of a URL. Raise ConfigError that names the URL."""
        problem = ConfigError(f"etcd endpoint {url!r} is not a URL like http://host:2379 or http://[::1]:2379")
        try:
            parts = urlsplit(url)
            port = parts.port or 2379
        except ValueError as error:  # the port is not a number
            raise problem from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise problem
        return cls(url, parts.scheme == "https", parts.hostname, port)

    def connect(self, timeout_seconds: float, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
        """Return a connection that opens with its first request."""
        if not self.secure:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_seconds)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_seconds, context=context)


@dataclass(frozen=True)
class Failure:
    """Why one endpoint gave no usable answer."""

    url: str
    text: str
    refused: bool = False
    """Whether the endpoint was reached and would refuse again."""

    def __str__(self) -> str:
        return f"{self.url}: {self.text}"


def failed(url: str, error: Exception) -> Failure:
    """Return the meaning of an exception in a request to an endpoint, and the remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure(
            url,
            f"its certificate is not trusted ({error.verify_message}; CERTIFICATE_VERIFY_FAILED): give the authority "
            "that signed it (cacert), and use a host name or address that the certificate names",
            refused=True,
        )
    if isinstance(error, ssl.SSLError) and any(word in str(error) for word in ("WRONG_VERSION", "RECORD_LAYER")):
        return Failure(url, "it does not speak TLS: write http:// instead of https://", refused=True)
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return Failure(url, f"TLS failed ({error}): it may need a client certificate (cert, key)", True)
    if isinstance(error, socket.gaierror):
        return Failure(url, f"the host's name cannot be resolved ({error}): check its spelling")
    if isinstance(error, ConnectionRefusedError):
        return Failure(url, f"nothing listens there ({error}): is etcd running, and is this its client port?")
    if isinstance(error, TimeoutError):
        return Failure(url, "no answer in time: is this the right address, and does a network policy let it through?")
    if isinstance(error, http.client.RemoteDisconnected | ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
        hint = "if it speaks TLS, write https://"
        if url.startswith("https:"):
            hint = "it may need a client certificate (cert, key), or speak no TLS: then write http://"
        return Failure(url, f"{error}: {hint}")
    if isinstance(error, http.client.HTTPException | ValueError):
        return Failure(url, f"what answers is not etcd ({error or type(error).__name__}): check the port", True)
    return Failure(url, str(error) or type(error).__name__)


def rejected(url: str, status: int, text: str) -> Failure:
    """Return the meaning of an HTTP status other than 200, and the remedy."""
    message = _message(text)
    for words, remedy in _ANSWERS:
        if words in message:
            return Failure(url, f"{remedy} ({message.strip()})", refused=True)
    if status == http.client.NOT_FOUND and not text.lstrip().startswith("{"):
        return Failure(url, "what answers is not etcd's v3 API (HTTP 404): check the port", refused=True)
    return Failure(url, f"HTTP {status} {message[:200]!r}")


def token_is_old(status: int, text: str) -> bool:
    """Return whether etcd would accept the request with a new token."""
    return status != http.client.OK and any(words in _message(text) for words in _TOKEN_IS_OLD)


def authentication_is_off(text: str) -> bool:
    """Return whether this is etcd's answer to a user name when authentication is off."""
    return "authentication is not enabled" in _message(text)


def error_of(failures: list[Failure], what: str) -> StoreError:
    """Return the exception for a request that failed at every endpoint."""
    refusals = [failure for failure in failures if failure.refused]
    if refusals:
        return Refused(f"etcd refuses {what} ({'; '.join(map(str, refusals))})")
    return StoreError(f"etcd does not answer {what} ({'; '.join(map(str, failures))})")


def _message(text: str) -> str:
    try:
        fields = json.loads(text)
        return str(fields.get("message") or fields.get("error") or text)
    except (ValueError, AttributeError):
        return text
