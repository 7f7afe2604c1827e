"""The HTTP client of a connection: its TLS, its credentials and its proxy."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from cli.access.kubeconfig import Connection
from cli.access.server import Server
from cli.errors import Unreachable
from tests import tls


@pytest.mark.parametrize("how", ["certificate-authority", "certificate-authority-data"])
def test_the_certificates_of_eks_are_accepted_on_every_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    tls.strict(monkeypatch)
    with tls.serving(tmp_path) as (url, ca):
        given = str(ca) if how == "certificate-authority" else base64.b64encode(ca.read_bytes()).decode()
        assert Server(Connection("c", "training", {"server": url, how: given})).read("/version") == "{}"


@pytest.mark.parametrize(
    ("certificate", "text"),
    [
        pytest.param({"address": "127.0.0.2"}, "not valid for", id="another-host"),
        pytest.param({"expired": True}, "expired", id="expired"),
    ],
)
def test_a_certificate_is_still_checked(tmp_path: Path, certificate: dict[str, Any], text: str) -> None:
    with tls.serving(tmp_path, **certificate) as (url, ca):
        server = Server(Connection("c", "training", {"server": url, "certificate-authority": str(ca)}))
        with pytest.raises(Unreachable, match=text):
            server.read("/version")


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with tls.serving(tmp_path) as (url, _), tls.serving(tmp_path / "other") as (_, ca):
        server = Server(Connection("c", "training", {"server": url, "certificate-authority": str(ca)}))
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            server.read("/version")
