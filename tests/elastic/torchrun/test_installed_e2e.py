"""A wheel in an empty environment, and scripts that have files of all kinds of names next to them."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import toolchain
from tests import wheel
from tests.elastic.torchrun import agents

pytestmark = pytest.mark.e2e

NAMES = ("trainer", "cli", "controller", "contract", "settings", "utils", "tidewater_utils")
"""Modules that users have; the first five were ours once."""
OWN = f"""
import {", ".join(NAMES)}
assert all(each.OWNER == "user" for each in ({", ".join(NAMES)}))
"""
SCRIPT = """
import torch
import tidewater

def training(config):
    model = torch.nn.Linear(1, 1)
    samples = [torch.ones(1)] * 8
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=samples,
        loss=lambda model, batch: model(batch).square().mean(),
    )

if __name__ == "__main__":
    raise SystemExit(tidewater.run(training))
"""
PATIENCE_SECONDS = 300

Run = Callable[..., str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has pip and the wheel, and none of the packages that its extras need."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=True)
    found = folder / "venv" / "bin" / "python"
    install: list[str | Path] = [found, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*install, wheel.build(folder)], env=environment(), check=True)
    return found


def environment(*packages: Path) -> dict[str, str]:
    """Return the environment of a user who has further packages."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    kept |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, packages))} if packages else kept


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Run:
    """A function that runs the environment's Python in an empty folder of the user."""

    def run(*arguments: str | Path, packages: tuple[Path, ...] = ()) -> str:
        command, env = [python, *arguments], environment(*packages)
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The user's folder with modules of those names."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text('OWNER = "user"\n')
    return tmp_path


def test_it_brings_two_names_and_nothing_else(run: Run) -> None:
    listed = run("-m", "pip", "show", "--files", "tidewater").partition("Files:\n")[2].split()
    names = {name.split("/")[0] for name in listed if not name.startswith("../")}
    assert {name for name in names if not name.endswith(".dist-info")} == {"tidewater", "elasticdl"}
    assert {name for name in listed if name.startswith("../")} == {
        f"../../../bin/{command}" for command in ("tidewater", "elasticdl")
    }


def test_importing_it_needs_no_other_package_and_the_command_line_no_torch(run: Run, python: Path) -> None:
    loaded = "import sys, tidewater; print(tidewater.__all__, 'torch' in sys.modules)"
    assert run("-c", loaded).endswith("False\n")
    packages = (Path(sysconfig.get_paths()["purelib"]),)
    assert "Usage: tidewater" in run(python.with_name("tidewater"), "--help", packages=packages)
    assert "kind: CustomResourceDefinition" in run(python.with_name("tidewater"), "install", packages=packages)
    assert run("-c", f"import tidewater.cli.app; {loaded}", packages=packages).endswith("False\n")


def test_a_users_files_next_to_a_script_do_no_harm(run: Run, files: Path, etcd: str) -> None:
    (files / "my_script.py").write_text(OWN + SCRIPT)
    arguments = ["--job", "own-files", "--etcd", etcd, "--host", "127.0.0.1", "--data", ".", "--batch-size", "4"]
    arguments += ["--checkpoints", "checkpoints", "--epochs", "1"]
    text = run("my_script.py", *arguments, packages=(toolchain.trainer_site_packages(),))
    assert "event=finished" in text


def test_a_users_files_next_to_a_script_of_torchrun_do_no_harm(run: Run, files: Path, etcd: str) -> None:
    (files / "my_script.py").write_text(OWN + agents.SCRIPT)
    # Started as a module, torchrun itself has the user's folder in its path too.
    torchrun = ["-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--local-addr=127.0.0.1"]
    rendezvous = ["--rdzv-backend=etcd-v3", f"--rdzv-endpoint={etcd}", "--rdzv-id=own-files"]
    conf = "--rdzv-conf=last_call_seconds=1"
    packages = (toolchain.trainer_site_packages(),)
    text = run(*torchrun, *rendezvous, conf, "my_script.py", "2", packages=packages)
    assert "step=1 rank=0 world_size=1" in text
