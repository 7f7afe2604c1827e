"""`activate` points everybody's tools at the one-machine cloud, and takes it back without a trace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.toolchain import paths, shell
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.shell import Place

PERSON = {
    "PATH": "/usr/bin:/bin",
    "AWS_PROFILE": "prod",
    "AWS_ENDPOINT_URL_S3": "http://elsewhere",
    "NO_PROXY": "intra",
    "HOME": "/h",
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "s", tmp_path / "s" / "bin", tmp_path / "venv" / "bin" / "python", 24600, "198.18.7.1")


def test_tools_are_pointed_at_the_cloud(place: Place) -> None:
    after = shell.environment(PERSON, place).applied_to(PERSON)
    assert after["PATH"] == f"{place.commands}:{place.python.parent}:/usr/bin:/bin"
    assert after["AWS_ENDPOINT_URL"] == "http://127.0.0.1:24600"
    assert after["PULUMI_BACKEND_URL"] == f"file://{place.state}/pulumi?metadata=skip"
    assert after["KUBECONFIG"] == f"{place.state}/kubeconfig"
    assert after["LOCALCLOUD_PYTHON"] == str(place.python)
    assert after["NO_PROXY"] == "intra,127.0.0.1,localhost,198.18.7.1,198.18.7.2"


def test_a_persons_real_aws_settings_are_taken_away(place: Place) -> None:
    after = shell.environment(PERSON, place).applied_to(PERSON)
    assert "AWS_PROFILE" not in after
    assert "AWS_ENDPOINT_URL_S3" not in after


def test_before_the_first_start_there_is_no_endpoint_yet(place: Place) -> None:
    new = Place(place.state, place.commands, place.python, None, None)
    assert "AWS_ENDPOINT_URL" not in shell.environment(PERSON, new).applied_to(PERSON)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, ("aws", "eks", "kubernetes"), id="unset means all"),
        pytest.param("", (), id="empty means none"),
        pytest.param("aws, eks", ("aws", "eks"), id="some"),
    ],
)
def test_each_stand_in_can_be_left_off(value: str | None, expected: tuple[str, ...]) -> None:
    assert shell.standins_of(value) == expected


def test_an_unknown_stand_in_is_named() -> None:
    with pytest.raises(StepFailed, match="LOCALCLOUD_STANDINS names gcp: choose from aws, eks, kubernetes"):
        shell.standins_of("aws,gcp")


def test_an_older_version_that_a_state_asks_for_is_the_stand_ins_too(place: Place) -> None:
    switch = "PULUMI_ENABLE_LEGACY_PLUGIN_SEARCH"
    assert shell.environment(PERSON, place).set[switch] == "true"
    assert switch not in shell.environment(PERSON, replace(place, standins=())).set


def test_the_address_is_the_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi"))
    (tmp_path / "instance.json").write_text(json.dumps({"port": 24601, "subnet": 9}))
    place = shell.prepare(tmp_path)
    assert (place.port, place.host_address) == (24601, "198.18.9.1")


@pytest.mark.parametrize("interpreter", ["bash", "zsh"])
def test_deactivating_restores_the_environment(interpreter: str, place: Place) -> None:
    if shutil.which(interpreter) is None:
        pytest.skip(f"{interpreter} isn't installed")
    environ = {**PERSON, "PATH": os.environ["PATH"], "AWS_REGION": "it's odd $HOME"}
    change = shell.script(shell.environment(environ, place), environ)
    lines = ["set -u", "env >before", change, "env >during", "deactivate_tidewater", "env >after", "true"]
    place.state.mkdir()
    subprocess.run([interpreter, "-c", "\n".join(lines)], cwd=place.state, env=environ, check=True)
    before, during, after = ((place.state / name).read_text() for name in ("before", "during", "after"))
    assert sorted(line for line in after.splitlines() if not line.startswith("_=")) == sorted(
        line for line in before.splitlines() if not line.startswith("_=")
    )
    assert "AWS_REGION=us-west-2" in during


def test_activate_works_from_another_directory_and_twice(tmp_path: Path) -> None:
    environ = {**os.environ, "LOCALCLOUD_STATE": str(tmp_path / "state"), "PULUMI_HOME": str(tmp_path / "pulumi")}
    commands = f". {paths.CHECKOUT}/activate && . {paths.CHECKOUT}/activate && command -v pulumi kubectl aws localcloud"
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    folder = tmp_path / "state" / "bin"
    assert done.stdout.split() == [str(folder / name) for name in ("pulumi", "kubectl", "aws", "localcloud")]
