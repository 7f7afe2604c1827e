"""How etcd is reached: address, TLS files, user and password; and what to say when it cannot be.

    access = Access.of(user=environ.get("…"), password=environ.get("…"), cacert="ca.pem", cert="", key="")
    store = EtcdStore(("https://etcd-0:2379",), access=access)

Clocks need not agree. A lease is counted down by etcd alone, and every revision is etcd's own; nothing here or above
compares a time of one machine with a time of another. Only TLS looks at the date, for a certificate's validity.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from trainer.errors import ConfigError, Refused, StoreError

_TOKEN_IS_OLD = ("invalid auth token", "revision of auth store is old")
_ANSWERS = (
    ("user name is empty", "it wants a user and a password"),
    ("authentication failed", "user or password is wrong"),
    ("permission denied", "the user may not do this: grant its role readwrite on the prefix /tidewater/"),
    ("HTTP request to an HTTPS server", "it speaks TLS: write https:// instead of http://"),
)


@dataclass(frozen=True)
class Access:
    """What etcd may want to see besides the request; nothing by default."""

    user: str = ""
    password: str = field(default="", repr=False)
    context: ssl.SSLContext | None = None
    """Of ``https://``; None: the system's authorities, and no certificate of our own."""

    @classmethod
    def of(cls, *, user: str = "", password: str = "", cacert: str = "", cert: str = "", key: str = "") -> Access:
        """Raises ConfigError that names what is missing, or the file that can't be used."""
        if bool(user) != bool(password):
            raise ConfigError("etcd's user and password belong together: give both or none")
        if bool(cert) != bool(key):
            raise ConfigError("--etcd-cert and --etcd-key belong together: give both or none")
        if not (cacert or cert):
            return cls(user, password)
        return cls(user, password, tls_context(cacert, cert, key, option="--etcd-{} {}"))


def tls_context(cacert: str, cert: str, key: str, *, option: str) -> ssl.SSLContext:
    """How to speak TLS with etcd; an empty ``cacert`` stands for the system's authorities, ``cert`` for none.

    Raises ConfigError that names the file at fault by ``option``, a format of an option's name and its value.
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
        """Raises ConfigError that names the URL."""
        problem = ConfigError(f"etcd endpoint {url!r} is not a URL like http://host:2379")
        try:
            parts = urlsplit(url)
            port = parts.port or 2379
        except ValueError as error:  # a port that is no number
            raise problem from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise problem
        return cls(url, parts.scheme == "https", parts.hostname, port)

    def connect(self, timeout_seconds: float, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
        """A connection that is opened by its first request."""
        if not self.secure:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_seconds)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_seconds, context=context)


@dataclass(frozen=True)
class Failure:
    """Why one endpoint gave no answer that can be used."""

    url: str
    text: str
    refused: bool = False
    """It was reached, and trying again gives the same."""

    def __str__(self) -> str:
        return f"{self.url}: {self.text}"


def failed(url: str, error: Exception) -> Failure:
    """What an exception on the way to an endpoint means, and the remedy."""
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
        return Failure(url, f"TLS failed ({error}): it may want a client certificate (cert, key)", True)
    if isinstance(error, socket.gaierror):
        return Failure(url, f"the host's name cannot be resolved ({error}): look at its spelling")
    if isinstance(error, ConnectionRefusedError):
        return Failure(url, f"nothing listens there ({error}): is etcd running, and is this its client port?")
    if isinstance(error, TimeoutError):
        return Failure(url, "no answer in time: is this the right address, and does a network policy let it through?")
    if isinstance(error, http.client.RemoteDisconnected | ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
        hint = "if it speaks TLS, write https://"
        if url.startswith("https:"):
            hint = "it may want a client certificate (cert, key), or speak no TLS: then write http://"
        return Failure(url, f"{error}: {hint}")
    if isinstance(error, http.client.HTTPException | ValueError):
        return Failure(url, f"what answers is not etcd ({error or type(error).__name__}): look at the port", True)
    return Failure(url, str(error) or type(error).__name__)


def rejected(url: str, status: int, text: str) -> Failure:
    """What an HTTP status other than 200 means, and the remedy."""
    message = _message(text)
    for words, remedy in _ANSWERS:
        if words in message:
            return Failure(url, f"{remedy} ({message.strip()})", refused=True)
    if status == http.client.NOT_FOUND and not text.lstrip().startswith("{"):
        return Failure(url, "what answers is not etcd's v3 API (HTTP 404): look at the port", refused=True)
    return Failure(url, f"HTTP {status} {message[:200]!r}")


def token_is_old(status: int, text: str) -> bool:
    """Whether etcd would take the request with a new token."""
    return status != http.client.OK and any(words in _message(text) for words in _TOKEN_IS_OLD)


def authentication_is_off(text: str) -> bool:
    """Whether this is etcd's answer to a user's name where nobody needs one."""
    return "authentication is not enabled" in _message(text)


def error_of(failures: list[Failure], what: str) -> StoreError:
    """The exception for a request that no endpoint has answered well."""
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
