"""The HTTP client of a connection: its TLS, its credentials and its proxy."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import tls
from tidewater.kube.errors import LoginFailed, NoKubeconfig, Unreachable
from tidewater.kube.http import client
from tidewater.kube.kubeconfig import Connection
from tidewater.kube.server import Server


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


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        pytest.param({"certificate-authority": "/none"}, {}, id="no-such-file"),
        pytest.param({"certificate-authority-data": "bm90IGEgY2VydGlmaWNhdGU="}, {}, id="no-certificate"),
        pytest.param({"certificate-authority-data": "?"}, {}, id="no-base64"),
        pytest.param({}, {"client-certificate": "/none", "client-key": "/none"}, id="no-client-certificate"),
        pytest.param({}, {"token": 7}, id="token-is-a-number"),
        pytest.param({}, {"auth-provider": {"name": "gcp"}}, id="auth-provider"),
        pytest.param({"server": "https://a:port"}, {}, id="no-url"),
        pytest.param({"proxy-url": "x://a"}, {}, id="no-proxy"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_names_the_context(cluster: dict[str, Any], user: dict[str, Any]) -> None:
    with pytest.raises(NoKubeconfig, match="context c of the kubeconfig can't be used"):
        Server(Connection("c", "training", {"server": "https://a", **cluster}, user))


PLAIN = {"server": "http://127.0.0.1:1"}


@pytest.mark.parametrize("name", ["none", "directory", "binary"])
def test_a_token_file_that_can_not_be_read_is_a_failed_login(tmp_path: Path, name: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff")
    server = Server(Connection("c", "training", PLAIN, {"tokenFile": str(tmp_path / name)}))
    with pytest.raises(LoginFailed, match=f"tokenFile {tmp_path / name}, which can't be read"):
        server.read("/version")


def sent(http: httpx2.Client) -> httpx2.Headers:
    """Return the headers of a request."""
    assert http.auth
    return next(http.auth.sync_auth_flow(http.build_request("GET", "/version"))).headers


def test_a_token_file_is_read_again_for_every_request_since_the_kubelet_renews_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with client(Connection("c", "training", PLAIN, {"tokenFile": str(file)})) as http:
        for token in ("one", "two"):
            file.write_text(f"{token}\n")
            assert sent(http)["Authorization"] == f"Bearer {token}"


def test_a_user_acts_as_another_one_as_with_kubectl() -> None:
    user = {
        "token": "t",
        "as": "björn",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.com/Scope": ["x", "y"]},
    }
    with client(Connection("c", "training", PLAIN, user)) as http:
        headers = sent(http)
    found = [(name.decode(), value.decode()) for name, value in headers.raw if name.startswith(b"Impersonate")]
    assert found == [
        ("Impersonate-User", "björn"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.com%2FScope", "x"),
        ("Impersonate-Extra-example.com%2FScope", "y"),
    ]
    assert headers["Authorization"] == "Bearer t"


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"as-groups": ["a"]}, id="groups-without-a-user"),
        pytest.param({"as-uid": "7"}, id="uid-without-a-user"),
        pytest.param({"as": "a", "as-groups": "b"}, id="groups-are-text"),
        pytest.param({"as": "a", "as-user-extra": {"k": "v"}}, id="extra-is-text"),
        pytest.param({"as": "a", "as-user-extra": ["k"]}, id="extra-is-a-list"),
        pytest.param({"as": ["a"]}, id="user-is-a-list"),
    ],
)
def test_a_user_never_acts_with_more_rights_than_the_kubeconfig_says(user: dict[str, Any]) -> None:
    with pytest.raises(NoKubeconfig, match="context c of the kubeconfig can't be used: as"):
        client(Connection("c", "training", PLAIN, user))


def without_socks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)  # as if it were not installed


def test_a_socks_proxy_of_the_kubeconfig_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without_socks(monkeypatch)
    with pytest.raises(NoKubeconfig, match="proxy-url socks5://proxy:1 of context c is a SOCKS proxy") as caught:
        client(Connection("c", "training", {**PLAIN, "proxy-url": "socks5://proxy:1"}))
    assert "socksio" in caught.value.remedy


def test_a_socks_proxy_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without_socks(monkeypatch)
    monkeypatch.setenv("ALL_PROXY", "socks5://proxy:1")
    with pytest.raises(NoKubeconfig, match=r"\$ALL_PROXY .* SOCKS proxy"):
        client(Connection("c", "training", PLAIN))


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_a_server_that_needs_no_proxy_needs_no_package_for_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_socks(monkeypatch)
    monkeypatch.setenv("ALL_PROXY", "socks5://proxy:1")
    monkeypatch.setenv(name, "intra,127.0.0.1")
    client(Connection("c", "training", PLAIN)).close()
    client(Connection("c", "training", {"server": "https://api.intra:6443"})).close()
