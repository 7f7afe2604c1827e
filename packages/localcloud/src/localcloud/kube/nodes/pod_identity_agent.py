"""The EKS Pod Identity agent of one node: exchanges a pod's service-account token for credentials of its role.

    python -I pod_identity_agent.py 169.254.170.23 http://198.18.0.1:24566 demo

The AWS SDKs in pods ask it (AWS_CONTAINER_CREDENTIALS_FULL_URI) with the token that EKS mounted; it asks EKS Auth's
AssumeRoleForPodIdentity, which knows the associations. It uses nothing but the standard library.
https://docs.aws.amazon.com/eks/latest/APIReference/API_auth_AssumeRoleForPodIdentity.html
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 80
PATH = "/v1/credentials"
TIMEOUT_SECONDS = 10.0
RENEW_SECONDS = 300.0  # credentials are renewed when they expire sooner than this
CACHE_LIMIT = 1000


class Refused(Exception):
    """EKS Auth refused, or did not answer; `status` is the HTTP status for the pod."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Exchange:
    """Exchanges tokens for credentials, and keeps the credentials until they are about to expire."""

    def __init__(self, endpoint: str, cluster: str) -> None:
        self._url = f"{endpoint}/clusters/{cluster}/assume-role-for-pod-identity"
        self._known: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def credentials(self, token: str) -> dict[str, Any]:
        """Credentials in the form that SDKs read from a container's provider.

        Raises:
            Refused: No association, a bad token, or EKS Auth doesn't answer.
        """
        with self._lock:
            known = self._known.get(token)
        if known is None or expiry(known) - time.time() < RENEW_SECONDS:
            known = container_credentials(self._ask(token))
            with self._lock:
                if len(self._known) >= CACHE_LIMIT:
                    self._known.clear()
                self._known[token] = known
        return known

    def _ask(self, token: str) -> dict[str, Any]:
        body = json.dumps({"token": token}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode(errors="replace")) from error
        except (OSError, ValueError) as error:
            raise Refused(500, f"EKS Auth does not answer: {error}") from error
        return answer


def container_credentials(answer: dict[str, Any]) -> dict[str, Any]:
    """Return EKS Auth's answer in the form that SDKs read."""
    given = answer["credentials"]
    moment = given["expiration"]
    if isinstance(moment, int | float):
        moment = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assumed = answer.get("assumedRoleUser", {}).get("arn", "")
    return {
        "AccessKeyId": given["accessKeyId"],
        "SecretAccessKey": given["secretAccessKey"],
        "Token": given["sessionToken"],
        "Expiration": moment,
        "AccountId": assumed.split(":")[4] if assumed.count(":") >= 5 else "",
    }


def expiry(credentials: dict[str, Any]) -> float:
    """Return when credentials expire, in seconds of time.time()."""
    return datetime.fromisoformat(credentials["Expiration"].replace("Z", "+00:00")).timestamp()


class Server(ThreadingHTTPServer):
    """The agent's HTTP server."""

    daemon_threads = True

    def __init__(self, address: str, exchange: Exchange, port: int = PORT) -> None:
        super().__init__((address, port), Handler)
        self.exchange = exchange


class Handler(BaseHTTPRequestHandler):
    """GET /v1/credentials with the token as the Authorization header."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request."""
        token = self.headers.get("Authorization", "")
        if self.path.split("?")[0] != PATH:
            self._reply(404, "Not Found")
        elif not token:
            self._reply(400, "Service account token cannot be empty")
        else:
            try:
                self._reply(200, json.dumps(self.server.exchange.credentials(token)), "application/json")
            except Refused as refused:
                self._reply(refused.status, str(refused))

    def log_message(self, format: str, *args: Any) -> None:
        """One line per request, without the token."""
        print(f"{self.client_address[0]} {format % args}", file=sys.stderr, flush=True)

    def _reply(self, status: int, text: str, kind: str = "text/plain") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    Server(sys.argv[1], Exchange(sys.argv[2], sys.argv[3])).serve_forever()
