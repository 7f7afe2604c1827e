"""Which kubeconfig and which context are chosen, and what is said about a wrong one."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidewater.kube.errors import NoKubeconfig
from tidewater.kube.kubeconfig import Access, contexts, in_cluster, load


def written(path: Path, current: str = "", **contexts: Mapping[str, Any]) -> str:
    """Write a kubeconfig with one cluster and one user for each context."""
    content: dict[str, Any] = {"contexts": [], "clusters": [], "users": []}
    for name, cluster in contexts.items():
        content["contexts"].append({"name": name, "context": {"cluster": name, "user": name, "namespace": "own"}})
        content["clusters"].append({"name": name, "cluster": {"server": f"https://{name}", **cluster}})
        content["users"].append({"name": name, "user": {"token": name}})
    if current:
        content["current-context"] = current
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_the_flag_wins_over_the_environment(tmp_path: Path) -> None:
    flag = written(tmp_path / "flag", "a", a={})
    other = written(tmp_path / "other", "b", b={})
    assert load(Access(kubeconfig=flag), {"KUBECONFIG": other}).server == "https://a"


def test_the_file_in_the_home_directory_is_the_default(tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config", "a", a={})
    found = load(Access(), {"HOME": str(tmp_path)})
    assert (found.server, found.namespace, found.user) == ("https://a", "own", {"token": "a"})


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    first = written(tmp_path / "first", "b", a={"proxy-url": "first"})
    second = written(tmp_path / "second", "a", a={"proxy-url": "second"}, b={})
    environment = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "none"), first, second])}
    assert load(Access(), environment).server == "https://b"
    assert load(Access(context="a"), environment).cluster["proxy-url"] == "first"


def test_another_cluster_than_the_contexts_can_be_named(tmp_path: Path) -> None:
    file = written(tmp_path / "config", "a", a={}, b={})
    found = load(Access(text=Path(file).read_text(), cluster="b"), {})
    assert (found.server, found.user) == ("https://b", {"token": "a"})
    with pytest.raises(NoKubeconfig, match="names cluster c, which the given text does not describe"):
        load(Access(text=Path(file).read_text(), cluster="c"), {})


def test_the_namespace_of_the_flag_wins(tmp_path: Path) -> None:
    file = written(tmp_path / "config", "a", a={})
    assert load(Access(kubeconfig=file, namespace="other"), {}).namespace == "other"


@pytest.mark.parametrize("name", ["..", "a/b", "*", "Own"])
def test_a_namespace_of_the_file_that_can_not_exist_is_named(tmp_path: Path, name: str) -> None:
    file = Path(written(tmp_path / "config", "a", a={}))
    file.write_text(file.read_text().replace("namespace: own", f"namespace: {name!r}"))
    with pytest.raises(NoKubeconfig, match="context a names namespace") as caught:
        load(Access(kubeconfig=str(file)), {})
    assert str(file) in str(caught.value)
    assert load(Access(kubeconfig=str(file), namespace="other"), {}).namespace == "other"


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    file = written(tmp_path / "sub" / "config", "a", a={"certificate-authority": "ca.crt"})
    found = load(Access(kubeconfig=file), {}).cluster["certificate-authority"]
    assert found == str(tmp_path / "sub" / "ca.crt")


@pytest.mark.parametrize(
    ("access", "environment", "text"),
    [
        pytest.param(Access(kubeconfig="none"), {}, "--kubeconfig none: there is no such file", id="flag"),
        pytest.param(Access(), {"KUBECONFIG": "/none"}, r"\$KUBECONFIG is /none, and there is no such", id="variable"),
        pytest.param(Access(), {"HOME": "/none"}, "there is no kubeconfig", id="nowhere"),
    ],
)
def test_a_file_that_is_not_there_is_named(access: Access, environment: Mapping[str, str], text: str) -> None:
    with pytest.raises(NoKubeconfig, match=text):
        load(access, environment)


USED = (
    "{current-context: x, contexts: [{name: x, context: {cluster: y, user: z}}],"
    " clusters: [{name: y, cluster: {server: s}}], users: [{name: z, user: {"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: [", "is not YAML", id="no-yaml"),
        pytest.param("- a", "is not a kubeconfig", id="a-list"),
        pytest.param("", "no current-context is set", id="empty"),
        pytest.param("current-context: x", "there is no context x", id="no-such-context"),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: y}}]}", "names cluster y", id="no-cluster"
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: y, user: z}}],"
            " clusters: [{name: y, cluster: {server: s}}]}",
            "names user z",
            id="no-user",
        ),
        pytest.param("clusters: foo", "clusters is not a list", id="clusters-are-text"),
        pytest.param("clusters: {c: {server: s}}", "clusters is not a list", id="clusters-are-a-mapping"),
        pytest.param("contexts: [null]", r"contexts\[0\] is not a mapping with a name", id="context-is-null"),
        pytest.param("users: [{user: {token: t}}]", r"users\[0\] is not a mapping with a name", id="user-has-no-name"),
        pytest.param("contexts: [{name: x, context: foo}]", "`context` of x is not a mapping", id="context-is-text"),
        pytest.param("users: [{name: u, user: [a]}]", "`user` of u is not a mapping", id="user-is-a-list"),
        pytest.param("users: [{name: u, user: {exec: aws}}]", "`exec` of u is not a mapping", id="exec-is-text"),
        pytest.param(f"{USED}exec: {{args: [a]}}}}}}]}}", "`exec` of user z .* names no command", id="no-command"),
        pytest.param(f"{USED}exec: {{command: c, args: a}}}}}}]}}", "`args` .* is not a list", id="args-are-text"),
        pytest.param(f"{USED}exec: {{command: c, env: a}}}}}}]}}", "`env` .* is not a list", id="env-is-text"),
        pytest.param(f"{USED}exec: {{command: c, env: [{{}}]}}}}}}]}}", "`env` .* without a name", id="no-name"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(NoKubeconfig, match=expected) as caught:
        load(Access(kubeconfig=str(file)), {})
    assert str(file) in str(caught.value)


def denied(path: Path, **_: Any) -> os.stat_result:
    """Answer as the kernel does about a directory that may not be entered."""
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


@pytest.mark.parametrize(
    ("access", "environment"),
    [
        pytest.param(Access(kubeconfig="/closed/config"), {}, id="flag"),
        pytest.param(Access(), {"KUBECONFIG": "/closed/config"}, id="variable"),
        pytest.param(Access(), {"HOME": "/closed"}, id="home"),
    ],
)
def test_a_file_in_a_closed_directory_is_named(
    monkeypatch: pytest.MonkeyPatch, access: Access, environment: Mapping[str, str]
) -> None:
    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(NoKubeconfig, match=r"/closed.*/config can't be read: Permission denied"):
        load(access, environment)


def test_a_home_directory_that_does_not_exist_is_named() -> None:
    with pytest.raises(NoKubeconfig, match="--kubeconfig ~nobody-here/config"):
        load(Access(kubeconfig="~nobody-here/config"), {})


def test_a_wrong_context_names_a_close_one_and_all(tmp_path: Path) -> None:
    file = written(tmp_path / "config", "production", production={}, test={})
    with pytest.raises(NoKubeconfig) as caught:
        load(Access(kubeconfig=file, context="producton"), {})
    assert caught.value.remedy == "Did you mean production? It has production, test."


def test_the_contexts_of_all_files_are_known(tmp_path: Path) -> None:
    first, second = written(tmp_path / "first", b={}), written(tmp_path / "second", a={}, b={})
    assert contexts(Access(), {"KUBECONFIG": os.pathsep.join([first, second])}) == ["a", "b"]


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("training\n")
    found = in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, "")
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "training")
    assert found.user == {"tokenFile": str(tmp_path / "token")}
