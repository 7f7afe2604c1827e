"""An HTTP client with the TLS settings, the credentials and the proxy of a kubeconfig's context.

    http = client(kubeconfig.load(Access(), os.environ))

lightkube reads the kubeconfig's TLS and user sections. Its client is not used here, since it can ask neither for
tables (the `Accept` header) nor for a pod's own HTTP server, and knows no `client.authentication.k8s.io/v1`.
"""

from __future__ import annotations

import ssl

import httpx2
import msgspec
from lightkube.config import client_adapter, models
from lightkube.config.kubeconfig import StrOrPath
from lightkube.core.exceptions import ConfigError

from cli.access.kubeconfig import Connection
from cli.access.plugin import PluginAuth
from cli.errors import NoKubeconfig

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""As long as the API server itself gives a request."""


def client(connection: Connection) -> httpx2.Client:
    """Return an HTTP client with the TLS settings and the credentials of the connection.

    Raises:
        NoKubeconfig: a certificate, a key or a value in the kubeconfig is unusable.
    """
    try:
        user = msgspec.convert({**connection.user, "exec": None}, models.User)
        plugin = connection.user.get("exec")
        auth = PluginAuth(plugin, connection.cluster) if plugin else client_adapter.user_auth(user)
        return httpx2.Client(
            base_url=connection.server,
            verify=_tls(connection, user),
            auth=auth,
            proxy=connection.cluster.get("proxy-url"),
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(),  # one connection per followed worker, however many there are
        )
    except (OSError, ValueError, ConfigError, httpx2.InvalidURL) as error:
        raise NoKubeconfig(
            f"context {connection.context} of the kubeconfig can't be used: {error}",
            "Write it again, for EKS with `aws eks update-kubeconfig --name CLUSTER`.",
        ) from None


def _tls(connection: Connection, user: models.User) -> ssl.SSLContext:
    """Return which certificates are accepted and which one is shown."""
    cluster = msgspec.convert(dict(connection.cluster), models.Cluster)
    context: ssl.SSLContext = client_adapter.verify_cluster(cluster, user, _as_it_is)
    # Python >= 3.13 sets this flag by default, which refuses certificates without an Authority Key Identifier. Those
    # of EKS have none. Chain, dates and host name are checked without it too.
    # https://github.com/kubernetes-client/python/issues/2394
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _as_it_is(path: StrOrPath) -> StrOrPath:
    """Return a path of the connection: it is absolute already."""
    return path
