"""`activate` makes all tools use the one-machine cloud; `deactivate` restores the environment completely."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import threading
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from awscli.customizations.overridesslcommonname import SSL_COMMON_NAMES
from localcloud import cli
from localcloud.instance import Instance

from scripts import toolchain
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


WITH_ADDRESSES = {
    "sqs": "list-queues",
    "emr": "list-clusters",
    "rds": "describe-db-instances",
    "docdb": "describe-db-clusters",
    "neptune": "describe-db-clusters",
    "health": "describe-events",
}
"""The services for which version 1 of `aws` has addresses of its own, and a command of each that needs no argument."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    cloud = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:24600",
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "random",
        "AWS_REGION": "us-west-2",
        "KUBECONFIG": f"{tmp_path}/s/kubeconfig",
        "NO_PROXY": "127.0.0.1,localhost,198.18.7.1",
    }
    shells = tmp_path / "shells"
    python = tmp_path / "venv" / "bin" / "python"
    return Place(tmp_path / "s", shells / "bin", shells / "home", tmp_path / "tools", python, cloud)


def test_tools_use_the_local_cloud(place: Place) -> None:
    after = shell.environment(PERSON, place).applied_to(PERSON)
    assert after["PATH"] == f"{place.commands}:{place.python.parent}:/usr/bin:/bin"
    assert after["AWS_ENDPOINT_URL"] == "http://127.0.0.1:24600"
    assert after["PULUMI_BACKEND_URL"] == f"file://{place.state}/pulumi?metadata=skip"
    assert after["KUBECONFIG"] == f"{place.state}/kubeconfig"
    assert after["LOCALCLOUD_PYTHON"] == str(place.python)
    assert after["LOCALCLOUD_TOOLS"] == str(place.tools)
    assert (after["AWS_ACCESS_KEY_ID"], after["AWS_SECRET_ACCESS_KEY"]) == ("AKIA", "random")
    assert after["NO_PROXY"] == after["no_proxy"] == "intra,127.0.0.1,localhost,198.18.7.1"


def test_a_users_real_aws_settings_are_removed(place: Place) -> None:
    after = shell.environment(PERSON, place).applied_to(PERSON)
    assert "AWS_PROFILE" not in after
    assert "AWS_ENDPOINT_URL_S3" not in after


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, "127.0.0.1,l", id="none"),
        pytest.param({"no_proxy": "intra"}, "intra,127.0.0.1,l", id="only the spelling that Python reads first"),
        pytest.param({"NO_PROXY": "a,b", "no_proxy": "b,c"}, "a,b,c,127.0.0.1,l", id="two lists"),
        pytest.param({"NO_PROXY": "*"}, "*", id="no proxy at all, which Python takes only alone"),
        pytest.param({"NO_PROXY": "a,127.0.0.1,l"}, "a,127.0.0.1,l", id="activated twice"),
    ],
)
def test_both_spellings_of_no_proxy_have_the_persons_hosts_and_this_machines(
    environ: dict[str, str], expected: str, place: Place
) -> None:
    at = replace(place, cloud={"NO_PROXY": "127.0.0.1,l"})
    after = shell.environment(environ, at).applied_to(environ)
    assert (after["NO_PROXY"], after["no_proxy"]) == (expected, expected)


OF_ANOTHER_BACKEND = {
    "PULUMI_CONFIG_PASSPHRASE": "mine",
    "PULUMI_CONFIG_PASSPHRASE_FILE": "/h/passphrase",
    "PULUMI_BACKEND_URL": "s3://states",
    "PULUMI_ACCESS_TOKEN": "pul-1234",
    "PULUMI_STACK": "prod",
    "PULUMI_HOME": "/h/pulumi",
    "PULUMI_SKIP_CHECKPOINTS": "true",
    "PULUMI_K8S_DELETE_UNREACHABLE": "true",
}


def test_a_users_own_pulumi_settings_lead_no_command_elsewhere(place: Place) -> None:
    after = shell.environment({**PERSON, **OF_ANOTHER_BACKEND, "KUBECONFIG": "/h/.kube/config"}, place).applied_to(
        {**PERSON, **OF_ANOTHER_BACKEND, "KUBECONFIG": "/h/.kube/config"}
    )
    alone = shell.environment(PERSON, place).applied_to(PERSON)
    assert {name: after[name] for name in after if name.startswith(("PULUMI_", "KUBE"))} == {
        name: alone[name] for name in alone if name.startswith(("PULUMI_", "KUBE"))
    }


def test_the_passphrase_is_that_of_the_local_stack(place: Place, tmp_path: Path) -> None:
    """Pulumi itself reads Pulumi.local.yaml with it, whatever passphrase and backend a person has."""
    environ = {**os.environ, **OF_ANOTHER_BACKEND}
    at = replace(place, state=tmp_path, home=tmp_path / "home")
    after = shell.environment(environ, at).applied_to(environ)
    (tmp_path / "pulumi").mkdir()
    for name in ("Pulumi.yaml", "Pulumi.local.yaml"):
        shutil.copy(paths.CHECKOUT / name, tmp_path / name)
    for command in (["stack", "init", "local"], ["config", "set", "--secret", "tidewater:x", "y"]):
        done = subprocess.run(
            [toolchain.binary("pulumi"), *command], cwd=tmp_path, env=after, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_before_the_first_start_no_endpoint_is_set(place: Place) -> None:
    after = shell.environment(PERSON, replace(place, cloud={})).applied_to(PERSON)
    assert "AWS_ENDPOINT_URL" not in after
    assert "never-started" in after["AWS_ACCESS_KEY_ID"]  # AWS refuses it, whatever profile the user has
    assert after["NO_PROXY"] == "intra,127.0.0.1,localhost"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, ("aws", "eks", "kubernetes"), id="unset means all"),
        pytest.param("", (), id="empty means none"),
        pytest.param("aws, eks", ("aws", "eks"), id="some"),
    ],
)
def test_each_stand_in_can_be_switched_off(value: str | None, expected: tuple[str, ...]) -> None:
    assert shell.standins_of(value) == expected


def test_an_unknown_stand_in_is_an_error_that_names_it() -> None:
    with pytest.raises(StepFailed, match="LOCALCLOUD_STANDINS names gcp: choose from aws, eks, kubernetes"):
        shell.standins_of("aws,gcp")


def test_the_stand_in_also_serves_an_older_version_that_a_state_requires(place: Place) -> None:
    switch = "PULUMI_ENABLE_LEGACY_PLUGIN_SEARCH"
    assert shell.environment(PERSON, place).set[switch] == "true"
    assert switch not in shell.environment(PERSON, replace(place, standins=())).set


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi"))
    return tmp_path / "around" / "state"


def test_preparing_creates_no_state_directory(state: Path) -> None:
    state.parent.mkdir()
    assert shell.prepare(state).cloud == {}
    assert not state.exists()


def test_the_engine_writes_no_log_of_its_own_for_each_command(state: Path) -> None:
    state.parent.mkdir()
    home = shell.prepare(state).home
    (home / "logs").unlink()
    (home / "logs").mkdir()
    (home / "logs" / "pulumi-20261127T011500-7963.log").write_text("of an earlier version of this set-up")
    place = shell.prepare(state)
    ask = [str(place.commands / "pulumi"), "stack", "ls", "--all", "--json"]
    (state.parent / "pulumi").mkdir()
    variables = {**os.environ, **shell.environment(os.environ, place).set}
    variables["PULUMI_BACKEND_URL"] = f"file://{state.parent / 'pulumi'}"
    assert json.loads(subprocess.run(ask, env=variables, capture_output=True, check=True).stdout) == []
    assert (home / "logs").is_file()


def test_the_charts_are_where_the_local_stack_looks_for_them(state: Path) -> None:
    state.parent.mkdir()
    config = yaml.safe_load((paths.CHECKOUT / "Pulumi.local.yaml").read_text())["config"]
    folder = paths.CHECKOUT / config["tidewater:karpenterCharts"]
    shell.prepare(state)
    assert {path.parent.name for path in folder.glob("*/Chart.yaml")} == {"karpenter", "karpenter-crd"}
    ignored = subprocess.run(["git", "check-ignore", "--quiet", folder], cwd=paths.CHECKOUT, check=False)
    assert ignored.returncode == 0, "a link to one machine's cache does not belong into the repository"


def test_after_a_start_address_and_keys_are_read_from_the_cloud(state: Path) -> None:
    made = Instance.create(state)
    cloud = shell.prepare(state).cloud
    assert cloud == json.loads(json.dumps(cli.exports(made)))
    assert stat.S_IMODE((state / "pulumi").stat().st_mode) == 0o700, "it has the stack's secrets"


def test_a_folder_of_another_program_is_refused_and_not_changed(state: Path) -> None:
    state.mkdir(parents=True)
    (state / "thesis.tex").touch()
    with pytest.raises(StepFailed, match=f"{state} is not a state directory"):
        shell.prepare(state)
    assert [path.name for path in state.iterdir()] == ["thesis.tex"]


def test_the_command_localcloud_needs_no_variable_of_the_activated_shell(state: Path, tmp_path: Path) -> None:
    """As under sudo, which removes the variables. A state directory that is given takes precedence."""
    Instance.create(state)
    command = shell.prepare(state).commands / "localcloud"

    def said(**environ: str) -> str:
        done = subprocess.run([command, "status"], env=environ, capture_output=True, text=True, check=False)
        return done.stderr

    assert f"no localcloud runs for {state}" in said()
    assert f"no localcloud in {tmp_path / 'another'}" in said(LOCALCLOUD_STATE=str(tmp_path / "another"))


@pytest.mark.parametrize(("service", "asked"), WITH_ADDRESSES.items())
def test_no_request_of_aws_leaves_the_machine(state: Path, service: str, asked: str) -> None:
    """Where a request would go to AWS, it is seen as one to a proxy."""
    requests: list[str] = []

    class Recorder(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(self.command)
            self.send_error(HTTPStatus.FORBIDDEN)

        do_CONNECT = do_POST  # noqa: N815 - http.server calls it

    command = shell.prepare(state).commands / "aws"
    with HTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        environ = {
            "AWS_ENDPOINT_URL": address,
            "HTTPS_PROXY": address,
            "NO_PROXY": "127.0.0.1",
            "AWS_DEFAULT_REGION": next(iter(SSL_COMMON_NAMES[service])),
            "AWS_ACCESS_KEY_ID": "AKIA",
            "AWS_SECRET_ACCESS_KEY": "random",
            "AWS_MAX_ATTEMPTS": "1",
        }
        subprocess.run([command, service, asked], env=environ, capture_output=True, check=False, timeout=60)
        server.shutdown()
    assert requests == ["POST"]


def test_all_services_of_aws_with_addresses_of_their_own_are_tried() -> None:
    assert WITH_ADDRESSES.keys() == SSL_COMMON_NAMES.keys()


def test_the_commands_of_a_deleted_checkout_are_deleted(state: Path, tmp_path: Path) -> None:
    state.parent.mkdir()
    commands = shell.prepare(state).commands
    assert (commands / "localcloud").exists()
    state.parent.rmdir()
    shell.prepare(tmp_path / "another")
    assert not commands.exists()


def test_torchx_has_the_scheduler_of_this_checkout_and_its_own(state: Path, tmp_path: Path) -> None:
    """From another directory, with modules there that have names of ours. TorchX's default stays what it was."""
    state.parent.mkdir()
    for name in ("torchx", "tidewater", "tidewater_torchx"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('another project')\n")
    commands = shell.prepare(state).commands

    def said(*command: str | Path) -> str:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    listed = "import torchx.schedulers as s; print(*s.get_scheduler_factories(), s.get_default_scheduler_name())"
    *names, default = said(commands / "torchx-python", "-P", "-c", listed).split()
    assert {"tidewater", "local_cwd", "local_docker", "kubernetes", "slurm", "aws_batch"} <= set(names)
    assert default == "local_docker"
    assert "image_repo=IMAGE_REPO" in said(commands / "torchx", "runopts", "tidewater")
    located = "import tidewater_torchx as package; print(package.__file__)"
    assert said(commands / "torchx-python", "-P", "-c", located).startswith(str(paths.CHECKOUT))


@pytest.mark.parametrize("name", ["torchx", "torchx-python"])
def test_without_torchxs_environment_its_commands_name_the_one_that_makes_it(
    name: str, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `make up`, which doesn't need it. Once it is made, the command works without another activation."""
    state.parent.mkdir()
    folder = tmp_path / "torchx"
    monkeypatch.setattr(paths, "torchx_folder", lambda: folder)
    command = shell.prepare(state).commands / name

    def said() -> str:
        done = subprocess.run([command, "x"], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert said() == "error: TorchX's Python environment is not set up on this machine; run `make torchx`\n"
    (folder / "bin").mkdir(parents=True)
    for program in ("python", "torchx"):
        (folder / "bin" / program).write_text('#!/bin/sh\necho "it got $1"\n')
        (folder / "bin" / program).chmod(0o755)
    assert said() == "it got x\n"


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
    names = "pulumi kubectl etcd helm aws localcloud tidewater elasticdl torchx torchx-python".split()
    commands = f". {paths.CHECKOUT}/activate && . {paths.CHECKOUT}/activate && command -v {' '.join(names)}"
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    folder = shell.prepare(tmp_path / "state").commands
    assert done.stdout.split() == [str(folder / name) for name in names]
