"""An HTTP client with the TLS settings, the credentials and the proxy of a kubeconfig's context.

    http = client(kubeconfig.load(Access(), os.environ))

lightkube reads the kubeconfig's TLS and user sections. Its client is not used here, since it can ask neither for
tables (the `Accept` header) nor for a pod's own HTTP server, and knows no `client.authentication.k8s.io/v1`.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote

import httpx2
import msgspec
from lightkube.config import client_adapter, models
from lightkube.config.kubeconfig import StrOrPath
from lightkube.core.exceptions import ConfigError

from tidewater.cli.access.kubeconfig import Connection, Section
from tidewater.cli.access.plugin import PluginAuth
from tidewater.cli.errors import LoginFailed, NoKubeconfig
from tidewater.contract.tls import accept_eks

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""As long as the API server itself gives a request."""

_TOKEN = "!#$&'*+-.^_`|~"
"""What may be in a header's name in addition to letters and digits, without the percent sign."""


class TokenFileAuth(httpx2.Auth):
    """Send the token of a file. It is read for every request, since the kubelet renews a service account's token."""

    def __init__(self, file: str) -> None:
        self._file = file

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request with the token."""
        try:
            token = Path(self._file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise LoginFailed(
                f"the kubeconfig logs in with tokenFile {self._file}, which can't be read: {reason}",
                "Correct tokenFile, or choose another context with --context.",
            ) from None
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


def client(connection: Connection) -> httpx2.Client:
    """Return an HTTP client with the TLS settings and the credentials of the connection.

    Raises:
        NoKubeconfig: a certificate, a key or a value in the kubeconfig is unusable.
    """
    proxy = str(connection.cluster.get("proxy-url") or "")
    try:
        user = msgspec.convert({**connection.user, "exec": None}, models.User)
        return httpx2.Client(
            base_url=connection.server,
            verify=_tls(connection, user),
            auth=_auth(connection, user),
            headers=_impersonation(connection.user),
            proxy=proxy or None,
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(),  # one connection per followed worker, however many there are
        )
    except (OSError, ValueError, ConfigError, httpx2.InvalidURL) as error:
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


def _auth(connection: Connection, user: models.User) -> httpx2.Auth | None:
    """Return how the user logs in; a client certificate is part of TLS."""
    plugin = connection.user.get("exec")
    if plugin:
        return PluginAuth(plugin, connection.cluster)
    if user.token_file:
        return TokenFileAuth(user.token_file)
    found: httpx2.Auth | None = client_adapter.user_auth(user)
    return found


def _impersonation(user: Section) -> list[tuple[bytes, bytes]]:
    """Return the headers with which the user acts as another user, who may have fewer rights.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation

    Raises:
        ValueError: the kubeconfig does not say as whom. kubectl refuses this too.
    """
    name, uid = user.get("as") or "", user.get("as-uid") or ""
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not isinstance(name, str) or not isinstance(groups, list):
        raise ValueError("as must be a name, and as-groups a list")
    if not isinstance(extra, dict) or not all(isinstance(values, list) for values in extra.values()):
        raise ValueError("as-user-extra must be a mapping of lists")
    if not name and (uid or groups or extra):
        raise ValueError("as-uid, as-groups and as-user-extra need a user in `as`")
    headers = [("User", name), ("Uid", uid), *(("Group", group) for group in groups)]
    headers += [(f"Extra-{quote(str(key), safe=_TOKEN)}", value) for key, values in extra.items() for value in values]
    return [(f"Impersonate-{key}".encode(), str(value).encode()) for key, value in headers if value]


def _tls(connection: Connection, user: models.User) -> ssl.SSLContext:
    """Return which certificates are accepted and which one is shown."""
    cluster = msgspec.convert(dict(connection.cluster), models.Cluster)
    context: ssl.SSLContext = client_adapter.verify_cluster(cluster, user, _as_it_is)
    accept_eks(context)
    return context


def _as_it_is(path: StrOrPath) -> StrOrPath:
    """Return a path of the connection: it is absolute already."""
    return path
