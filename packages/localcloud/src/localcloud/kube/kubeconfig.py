"""Kubeconfig documents, as pure functions. JSON is YAML, so no YAML library is needed to write one."""

from __future__ import annotations

import base64
import json

from localcloud.kube.pki import Pair


def client_kubeconfig(server: str, ca_pem: str, pair: Pair, user: str) -> str:
    """A kubeconfig that logs in with a client certificate."""
    credentials = {
        "client-certificate-data": _encoded(pair.certificate),
        "client-key-data": _encoded(pair.key),
    }
    return _document(server, ca_pem, user, credentials)


def webhook_kubeconfig(url: str, ca_pem: str) -> str:
    """What the API server reads to find its authentication webhook."""
    return _document(url, ca_pem, "apiserver", {})


def _document(server: str, ca_pem: str, user: str, credentials: dict[str, str]) -> str:
    cluster = {"server": server, "certificate-authority-data": _encoded(ca_pem)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": user}}],
        "current-context": "default",
    }
    return json.dumps(document, indent=1) + "\n"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
