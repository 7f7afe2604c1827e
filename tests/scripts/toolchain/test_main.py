"""The command line: its output on a machine that is set up, and its errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.toolchain import __main__ as command
from scripts.toolchain import go_tools, paths, stack_python, steps, torchx_python
from scripts.toolchain.commands import Console
from scripts.toolchain.table import BENCH_TOOLS, MONITORING_TOOLS, PREVIOUS_TOOLS, Tool


def test_installing_again_prints_nothing_and_builds_nothing() -> None:
    # Another set-up of this cache may be about to add Prometheus to the nodes' image: until then that is to be made.
    with steps.only_one(paths.cache(), Console(lambda line: None)):
        assert [step.name for step in command.all_steps() if not step.done()] == [], "this machine is not set up"
        done = subprocess.run(
            [sys.executable, "-m", "scripts.toolchain", "install"],
            cwd=paths.CHECKOUT,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,  # it takes a second when nothing else runs
        )
    assert (done.stdout, done.stderr) == ("", "")


INSTALLED = {step.name for step in command.all_steps()}


@pytest.mark.parametrize(
    ("further", "name"),
    [
        pytest.param(BENCH_TOOLS, "training operator", id="what only benchmarks run"),
        pytest.param(PREVIOUS_TOOLS, "kubernetes previous", id="the version of Kubernetes before"),
        pytest.param(MONITORING_TOOLS, "prometheus", id="Prometheus"),
    ],
)
def test_installing_does_not_build(further: Mapping[str, Tool], name: str) -> None:
    """Its step has a name of its own, as logs and timings have."""
    assert [step.name for step in go_tools.steps(further)] == [name]
    assert name not in INSTALLED


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        pytest.param("install", set(), id="make up"),
        pytest.param("monitoring", {"prometheus"}, id="a stack with monitoring"),
        pytest.param("install-tests", {"prometheus", "TorchX environment"}, id="make test"),
    ],
)
def test_only_what_is_asked_for_is_added(arguments: str, added: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(steps, "install", lambda listed, console: made.extend(step.name for step in listed))
    assert command.main([arguments]) == 0
    assert set(made) - INSTALLED == added
    assert set(made) >= INSTALLED


def test_each_step_is_listed_after_those_that_it_needs() -> None:
    """The nodes' image after Prometheus too: it would be made twice else."""
    listed = command.all_steps(monitoring=True, torchx=True)
    names = [step.name for step in listed]
    for step in listed:
        assert set(step.after) <= set(names[: names.index(step.name)])
    image = next(step for step in listed if step.name == "node image")
    assert {"etcd", "coredns", "karpenter", "prometheus"} < set(image.after)


def test_the_environments_python_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["python"]) == 0
    assert command.main(["python", "torchx"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(stack_python()), str(torchx_python())]


def test_torchx_has_its_older_urllib3_and_the_tools_of_the_other_tests() -> None:
    script = "import urllib3, torchx, pytest, moto, tidewater.elastic.data.dataset; print(urllib3.__version__)"
    done = subprocess.run(
        [torchx_python(), "-c", script], cwd=paths.CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("1.26.")


def test_an_error_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path))
    assert command.main(["python"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: the Python environment is not set up")
    assert printed.count("\n") == 1
    assert command.main(["python", "torchx"]) == 1
    assert capsys.readouterr().err.endswith("run `make torchx`\n")


def test_timings_lists_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path))
    (tmp_path / "timings.json").write_text('{"kubelet": 17.0}')
    assert command.main(["timings"]) == 0
    assert capsys.readouterr().out.split() == ["kubelet", "17", "s"]
