"""How helm is called, with a stand-in for the program that reads the files it is given."""

from __future__ import annotations

import itertools
import json
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from localcloud.standins.kubernetes.helm.arguments import ChartArguments
from localcloud.standins.kubernetes.helm.command import Outcome, Target, kubeconfig, render, run_helm
from localcloud.standins.serve import PluginError

from tidewater.kube import kubeconfig as kubeconfigs
from tidewater.kube.kubeconfig import Access, Connection

CLUSTER = {"server": "https://api.example", "certificate-authority-data": "Q0E="}
CONNECTION = Connection("c", "ctx", CLUSTER, {"token": "t"})
TARGET = Target(CONNECTION, "home", "v1.34.4", ("v1", "v1/Pod"))


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
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_inputs_are_flags(inputs: dict[str, Any], expected: list[str]) -> None:
    call = called(FakeHelm(), **inputs)
    assert any(call[index : index + len(expected)] == expected for index in range(len(call)))


def test_definitions_are_left_out_if_the_program_says_so() -> None:
    assert "--include-crds" not in called(FakeHelm(), skip_crds=True)


def test_values_reach_helm_in_a_file() -> None:
    helm = FakeHelm()
    called(helm, values={"d": None})
    assert helm.files["--values"] == '{"d": null}'


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
        run_helm(["template"])


def test_helm_gets_no_other_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "helm"
    program.write_text('#!/bin/sh\necho "$1 [$HELM_KUBECONTEXT]"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HELM_KUBECONTEXT", "another")
    assert run_helm(["template"]).output == "template []\n"


def test_a_kubeconfig_can_be_written_and_read_again() -> None:
    plugin = {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"}
    files = {"client-certificate-data": "Q0VSVA==", "client-key": "/key"}
    connection = Connection("chart", "here", {**CLUSTER, "tls-server-name": "name"}, {"exec": plugin, **files})
    again = kubeconfigs.load(Access(text=json.dumps(kubeconfig(connection))), {})
    assert again == connection
