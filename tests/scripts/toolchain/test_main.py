"""The command line: its output on a machine that is set up, and its errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.toolchain import __main__ as command
from scripts.toolchain import go_tools, paths, stack_python, steps, torchx_python
from scripts.toolchain.table import BENCH_TOOLS, MONITORING_TOOLS, PREVIOUS_KUBERNETES, PREVIOUS_TOOLS, TOOLS


def test_installing_again_prints_nothing_and_builds_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.toolchain", "install"],
        cwd=paths.CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,  # it takes a second when nothing else runs
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_installing_does_not_build_what_only_benchmarks_run() -> None:
    assert {step.name for step in go_tools.bench_steps()} == set(BENCH_TOOLS)
    assert not set(BENCH_TOOLS) & {step.name for step in command.all_steps()}


def test_installing_does_not_build_the_version_of_kubernetes_before() -> None:
    previous = go_tools.previous_steps()
    assert {step.name for step in previous} == {f"{name} {PREVIOUS_KUBERNETES}" for name in PREVIOUS_TOOLS}
    assert not {step.name for step in previous} & {step.name for step in command.all_steps()}, "logs and timings"
    assert {tool.module for tool in TOOLS.values()} & {tool.module for tool in PREVIOUS_TOOLS.values()} == set()


def test_installing_does_not_build_prometheus() -> None:
    assert {step.name for step in go_tools.monitoring_steps()} == set(MONITORING_TOOLS)
    assert not set(MONITORING_TOOLS) & {step.name for step in command.all_steps()}


def test_with_prometheus_the_nodes_image_is_made_once_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(steps, "install", lambda listed, console: made.extend(step.name for step in listed))
    assert command.main(["monitoring"]) == 0
    assert made == [*(step.name for step in command.all_steps()[:-1]), *MONITORING_TOOLS, "node image"]


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


def test_timings_lists_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path))
    (tmp_path / "timings.json").write_text('{"kubelet": 17.0}')
    assert command.main(["timings"]) == 0
    assert capsys.readouterr().out.split() == ["kubelet", "17", "s"]
