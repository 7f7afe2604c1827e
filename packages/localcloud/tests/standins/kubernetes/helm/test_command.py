"""How helm is called, with a stand-in for the program that reads the files it is given."""

from __future__ import annotations

import base64
import itertools
import json
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pytest
from localcloud.standins.kubernetes.cluster.kubeconfig import Connection, Kubeconfig
from localcloud.standins.kubernetes.helm.arguments import ChartArguments, Repository
from localcloud.standins.kubernetes.helm.command import Outcome, Target, helm_with, kubeconfig, render
from localcloud.standins.serve import PluginError
from pulumi.errors import InputPropertyError

CONNECTION = Connection("https://api.example", "c", ca_pem="CA", user={"token": "t"}, namespace="ctx")
TARGET = Target(CONNECTION, "home", "v1.34.4", ("v1", "v1/Pod"))
PASSWORD = "hunter2"
LACKING = Outcome(1, "", "Error: An error occurred while checking for chart dependencies. You may need to run")


@dataclass
class FakeHelm:
    """Remembers each call, and the text of every file that it names."""

    outcomes: list[Outcome] = field(default_factory=list)
    calls: list[list[str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    modes: list[int] = field(default_factory=list)

    def __call__(self, arguments: Sequence[str]) -> Outcome:
        self.calls.append(list(arguments))
        for flag, value in itertools.pairwise(arguments):
            if Path(value).is_file():
                self.files[flag if flag not in self.files else f"{flag} again"] = Path(value).read_text()
                self.modes.append(stat.S_IMODE(Path(value).parent.stat().st_mode))
        return self.outcomes.pop(0) if self.outcomes else Outcome(0, "kind: A\n", "")


def chart(**inputs: Any) -> ChartArguments:
    return ChartArguments(**{"chart": "demo", "name": "release", "prefix": "release", **inputs})


def called(helm: FakeHelm, **inputs: Any) -> list[str]:
    render(chart(**inputs), TARGET, helm)
    return helm.calls[-1]


def flag(call: list[str], name: str) -> str:
    return call[call.index(name) + 1]


def test_a_chart_is_rendered_for_the_cluster_without_hooks_and_with_definitions() -> None:
    helm = FakeHelm()
    call = called(helm)
    assert call[:3] == ["template", "release", "demo"]
    assert (flag(call, "--namespace"), flag(call, "--kube-version")) == ("home", "v1.34.4")
    assert flag(call, "--api-versions") == "v1,v1/Pod"
    assert {"--dry-run=server", "--no-hooks", "--include-crds"} <= set(call)
    assert json.loads(helm.files["--kubeconfig"])["clusters"][0]["cluster"]["server"] == "https://api.example"
    assert set(helm.modes) == {0o700}
    assert not Path(flag(call, "--kubeconfig")).exists()


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"namespace": "n"}, ["--namespace", "n"]),
        ({"version": "1.14.0"}, ["--version", "1.14.0"]),
        ({"devel": True}, ["--devel"]),
        ({"verify": True, "keyring": pulumi.FileAsset("ring.gpg")}, ["--verify", "--keyring", "ring.gpg"]),
        ({"plain_http": True}, ["--plain-http"]),
        ({"repository": Repository(url="https://charts.example")}, ["--repo", "https://charts.example"]),
        ({"repository": Repository(ca_file=pulumi.FileAsset("ca.pem"))}, ["--ca-file", "ca.pem"]),
        (
            {"post_renderer": ("./render", "-x", "y")},
            ["--post-renderer", "./render", "--post-renderer-args=-x", "--post-renderer-args=y"],
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_inputs_are_flags(inputs: dict[str, Any], expected: list[str]) -> None:
    call = called(FakeHelm(), **inputs)
    assert any(call[index : index + len(expected)] == expected for index in range(len(call)))


def test_definitions_are_left_out_if_the_program_says_so() -> None:
    assert "--include-crds" not in called(FakeHelm(), skip_crds=True)


def test_values_win_over_files_and_later_files_over_earlier_ones() -> None:
    helm = FakeHelm()
    files = (pulumi.StringAsset("a: 1"), pulumi.RemoteAsset("https://example.test/b.yaml"), pulumi.FileAsset("c.yaml"))
    call = called(helm, value_files=files, values={"d": None})
    given = [value for name, value in itertools.pairwise(call) if name == "--values"]
    assert [Path(value).name for value in given] == ["values-0.yaml", "b.yaml", "c.yaml", "values.json"]
    assert given[1:3] == ["https://example.test/b.yaml", "c.yaml"]
    assert (helm.files["--values"], helm.files["--values again"]) == ("a: 1", '{"d": null}')


def test_the_password_of_a_registry_reaches_helm_in_a_file() -> None:
    helm = FakeHelm()
    repository = Repository(username="me", password=PASSWORD)
    called(helm, chart="oci://registry.example/charts/demo", repository=repository)
    login = json.loads(helm.files["--registry-config"])["auths"]["registry.example"]["auth"]
    assert base64.b64decode(login).decode() == f"me:{PASSWORD}"
    assert PASSWORD not in str(helm.calls)


def test_the_password_of_a_repository_reaches_helm_in_a_file() -> None:
    helm = FakeHelm()
    repository = Repository("https://charts.example", "me", PASSWORD)
    call = called(helm, repository=repository, version="1.0.0")
    assert helm.calls[0][:3] == ["repo", "update", "chart"]
    assert call[2] == "chart/demo"
    (entry,) = json.loads(helm.files["--repository-config"])["repositories"]
    assert (entry["url"], entry["username"], entry["password"]) == ("https://charts.example", "me", PASSWORD)
    assert PASSWORD not in str(helm.calls)


def test_a_password_for_the_address_of_an_archive_is_refused() -> None:
    repository = Repository(username="me", password=PASSWORD)
    with pytest.raises(InputPropertyError) as caught:
        render(chart(chart="https://charts.example/demo-1.0.0.tgz", repository=repository), TARGET, FakeHelm())
    assert caught.value.property_path == "repositoryOpts.password"
    assert "give repositoryOpts.repo" in caught.value.reason


@pytest.mark.parametrize(
    ("lock", "update", "command"),
    [(True, False, ["build"]), (True, True, ["update"]), (False, True, ["update"])],
    ids=["named-by-a-lock-file", "newer-than-the-lock-file", "without-a-lock-file"],
)
def test_charts_that_a_chart_lacks_are_fetched_once(
    lock: bool, update: bool, command: list[str], tmp_path: Path
) -> None:
    if lock:
        (tmp_path / "Chart.lock").write_text("")
    helm = FakeHelm([LACKING])
    assert render(chart(chart=str(tmp_path), dependency_update=update), TARGET, helm).manifest == "kind: A\n"
    assert [call[:2] for call in helm.calls[1:2]] == [["dependency", *command]]
    assert [call[0] for call in helm.calls] == ["template", "dependency", "template"]
    assert helm.calls[0] == helm.calls[2]


def test_without_a_lock_file_nothing_is_fetched_unless_the_program_says_so() -> None:
    with pytest.raises(PluginError, match="checking for chart dependencies"):
        render(chart(chart="no-folder"), TARGET, FakeHelm([LACKING]))


def test_what_helm_says_while_it_fetches_charts_is_no_part_of_the_manifest(tmp_path: Path) -> None:
    """With --dependency-update, `helm template` writes its progress before the manifest."""
    fetched = Outcome(0, "Saving 1 charts\nDeleting outdated charts\n", "")
    helm = FakeHelm([LACKING, fetched])
    assert render(chart(chart=str(tmp_path), dependency_update=True), TARGET, helm).manifest == "kind: A\n"
    assert "--dependency-update" not in str(helm.calls)


def test_an_error_is_helm_s_own_message() -> None:
    failed = Outcome(1, "", 'WARNING: something\nError: chart "demo" not found\n')
    with pytest.raises(PluginError) as caught:
        render(chart(), TARGET, FakeHelm([failed]))
    assert str(caught.value) == 'chart "demo" not found'


def test_a_deprecated_chart_is_noticed() -> None:
    assert render(chart(), TARGET, FakeHelm([Outcome(0, "", "WARNING: This chart is deprecated\n")])).deprecated
    assert not render(chart(), TARGET, FakeHelm()).deprecated


def test_without_helm_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PluginError, match="needs helm 3 on PATH: run `make install`"):
        helm_with({})(["template"])


def test_helm_gets_the_provider_s_settings_and_no_other_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "helm"
    program.write_text('#!/bin/sh\necho "$1 $HELM_DRIVER [$HELM_KUBECONTEXT]"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HELM_KUBECONTEXT", "another")
    assert helm_with({"HELM_DRIVER": "memory"})(["template"]).output == "template memory []\n"


def test_a_kubeconfig_can_be_written_and_read_again() -> None:
    connection = Connection(
        "https://api.example", "chart", "CA", False, "name", "CERT", "KEY", {"exec": {"command": "aws"}}, "here"
    )
    again = Kubeconfig.load(json.dumps(kubeconfig(connection))).connection(None, None)
    expected = {"exec": {"command": "aws"}, "client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"}
    assert again == Connection("https://api.example", "chart", "CA", False, "name", "CERT", "KEY", expected, "here")
