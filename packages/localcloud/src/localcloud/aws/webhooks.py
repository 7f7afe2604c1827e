"""The HTTPS server that API servers call: token authentication and the mutating webhook of pod identity."""

from __future__ import annotations

import json
import ssl
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from werkzeug.wrappers import Request, Response

from localcloud.aws.eks.identity import pod_webhook, token
from localcloud.aws.eks.state import Eks
from localcloud.kube.pki import Authority

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def application(eks: Eks, endpoint: str) -> WSGI:
    """Return the application that serves `/authenticate/CLUSTER` and `/pod-identity/CLUSTER`.

    Args:
        endpoint: The URL of the AWS endpoint for pods.
    """

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        _, kind, cluster = request.path.split("/", 2) if request.path.count("/") == 2 else ("", "", "")
        body = json.loads(request.get_data() or b"{}")
        if kind == "authenticate":
            answer = token.review(eks, cluster, body)
        elif kind == "pod-identity":
            answer = pod_webhook.review(eks, cluster, endpoint, body)
        else:
            return Response(f"no webhook at {request.path}\n", 404)(environ, start_response)
        return Response(json.dumps(answer), content_type="application/json")(environ, start_response)

    return app


def server_tls(address: str) -> tuple[ssl.SSLContext, str]:
    """Return a server context with a new certificate for `address`, and the PEM of the authority that signed it."""
    authority = Authority.create("localcloud webhooks")
    pair = authority.issue("localcloud", hosts=[address])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(*pair.write(Path(folder), "webhooks"))
    return context, authority.pair.certificate
