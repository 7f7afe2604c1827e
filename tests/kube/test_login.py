"""Login plug-ins: what they get, and when they are asked."""

from __future__ import annotations

import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tidewater.kube.errors import LoginFailed
from tidewater.kube.login import PluginAuth, Token, ask, auth

CLUSTER = {"server": "https://a", "certificate-authority-data": "Y2E="}


def plugin(folder: Path, code: str, **more: Any) -> dict[str, Any]:
    """Return an `exec` section with a command that runs Python code."""
    file = folder / "plugin"
    file.write_text(f"#!{sys.executable}\nimport json, os, sys\n{code}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(file), **more}


def answers(expression: str) -> str:
    return f"print(json.dumps({{'status': {{'token': {expression}}}}}))"


def test_the_plugin_gets_its_arguments_and_its_environment(tmp_path: Path) -> None:
    section = plugin(
        tmp_path,
        answers("sys.argv[1] + os.environ['OWN']"),
        args=["--cluster-name"],
        env=[{"name": "OWN", "value": "value"}],
    )
    assert ask(section, CLUSTER) == Token("--cluster-namevalue")


def test_a_variable_without_a_value_is_empty_as_with_kubectl(tmp_path: Path) -> None:
    section = plugin(tmp_path, answers("'<' + os.environ['OWN'] + '>'"), env=[{"name": "OWN"}])
    assert ask(section, CLUSTER).value == "<>"


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_the_plugin_is_told_the_version_that_it_speaks(tmp_path: Path, version: str) -> None:
    section = plugin(tmp_path, answers("json.loads(os.environ['KUBERNETES_EXEC_INFO'])['apiVersion']"))
    section["apiVersion"] = f"client.authentication.k8s.io/{version}"
    assert ask(section, CLUSTER).value == section["apiVersion"]


def test_the_plugin_is_told_the_cluster_when_it_wants_to_know(tmp_path: Path) -> None:
    code = answers("json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']['cluster']['server']")
    assert ask(plugin(tmp_path, code, provideClusterInfo=True), CLUSTER).value == "https://a"


def test_a_plugin_that_is_not_installed_says_how_to_install_it() -> None:
    section = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "no-such-plugin",
        "installHint": "Install it with x.\n",
    }
    with pytest.raises(LoginFailed, match="logs in with `no-such-plugin`, and No such file") as caught:
        ask(section, CLUSTER)
    assert caught.value.remedy == "Install it with x."


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param("sys.exit(3)", "ended with exit status 3", id="fails"),
        pytest.param("print('hello')", "did not print a token", id="no-json"),
        pytest.param("print('{}')", "did not print a token", id="no-status"),
        pytest.param("print(json.dumps({'status': {'clientKeyData': ''}}))", "did not print a token", id="no-token"),
    ],
)
def test_a_plugin_that_gives_no_token_is_named(tmp_path: Path, code: str, text: str) -> None:
    with pytest.raises(LoginFailed, match=text) as caught:
        ask(plugin(tmp_path, code), CLUSTER)
    assert str(tmp_path / "plugin") in str(caught.value)


def test_a_plugin_without_a_terminal_gets_no_input_and_its_last_line_is_in_the_error(tmp_path: Path) -> None:
    code = "print('first', file=sys.stderr); print('no such cluster' + sys.stdin.read(), file=sys.stderr); sys.exit(3)"
    with pytest.raises(LoginFailed) as caught:
        ask(plugin(tmp_path, code), CLUSTER, interactive=False)
    assert caught.value.message.endswith("ended with exit status 3: no such cluster")
    told = plugin(tmp_path, answers("str(json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']['interactive'])"))
    assert ask(told, CLUSTER, interactive=False).value == "False"


@pytest.mark.parametrize(
    ("user", "header"),
    [({"token": "t"}, "Bearer t"), ({"username": "u", "password": "p"}, "Basic dTpw"), ({}, None)],
    ids=["token", "password", "none"],
)
def test_the_authorization_header_follows_the_kubeconfigs_user(user: dict[str, str], header: str | None) -> None:
    sent: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers.get("Authorization"))
        return httpx2.Response(200)

    with httpx2.Client(transport=httpx2.MockTransport(answer), auth=auth(user, CLUSTER)) as client:
        client.get("http://a")
    assert sent == [header]


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(LoginFailed, match="speaks x/v2"):
        ask({"apiVersion": "x/v2", "command": "true"}, CLUSTER)


def test_a_token_is_not_used_in_its_last_minute() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    assert Token("t", now + timedelta(seconds=61)).usable(now)
    assert not Token("t", now + timedelta(seconds=60)).usable(now)


def counting(folder: Path) -> dict[str, Any]:
    """Return a plug-in that gives 1, 2, 3 … as tokens."""
    file = folder / "count"
    code = f"n = int(open({str(file)!r}).read()) + 1; open({str(file)!r}, 'w').write(str(n))\n"
    file.write_text("0")
    return plugin(folder, code + answers("str(n)"))


def test_a_token_is_used_until_it_is_refused(tmp_path: Path) -> None:
    sent: list[str] = []
    refused = {"Bearer 1"}

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers["Authorization"])
        return httpx2.Response(401 if sent[-1] in refused and len(sent) > 2 else 200)

    counted = PluginAuth(counting(tmp_path), CLUSTER)
    with httpx2.Client(transport=httpx2.MockTransport(answer), auth=counted) as client:
        codes = [client.get("http://a").status_code for _ in range(3)]
    assert sent == ["Bearer 1", "Bearer 1", "Bearer 1", "Bearer 2"]
    assert codes == [200, 200, 200]


def test_a_user_who_is_never_accepted_is_asked_for_twice_and_no_more(tmp_path: Path) -> None:
    counted = PluginAuth(counting(tmp_path), CLUSTER)
    transport = httpx2.MockTransport(lambda request: httpx2.Response(401))
    with httpx2.Client(transport=transport, auth=counted) as client:
        assert client.get("http://a").status_code == 401
    assert (tmp_path / "count").read_text() == "2"
