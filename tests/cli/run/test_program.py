"""A script, a module, or a folder with packages runs here as in a worker, and mistakes are the stack's sentences."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.elastic.packages.wheels import wheel
from tidewater.cli.app import app
from tidewater.cli.errors import CliError, UsageError
from tidewater.cli.run.program import Source, checked, prepared

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """\
import json, os, pathlib, sys, alpha, net.model
here = sorted(str(path) for path in pathlib.Path().rglob("*.*") if "__pycache__" not in str(path))
print(json.dumps([__name__, alpha.VERSION, net.model.NAME, here, sys.argv[1:]]))
"""

Ran = subprocess.CompletedProcess[str]
Run = Callable[..., Ran]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, a module and what is ignored; next to it a lock. The cache is empty."""
    folder = tmp_path / "project"
    (folder / "net").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "net" / "model.py").write_text("NAME = 'model'\n")
    (folder / ".gitignore").write_text("secret.py\n")
    (folder / "secret.py").write_text("")
    line = wheel(tmp_path / "wheels", "alpha")
    (tmp_path / "lock.txt").write_text(f"--no-index\n--find-links wheels\n{line}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program as a worker of `tidewater run` does."""

    def run_it(*words: str, said: list[str] | None = None, **source: str) -> Ran:
        program = checked(words[0], words[1:], Source(**source), "tidewater run", ())
        ready = prepared(program, tmp_path_factory.mktemp("new"), ([] if said is None else said).append)
        environ = ready.environment(os.environ)
        return subprocess.run(ready.line, env=environ, capture_output=True, text=True, check=False)

    return run_it


@pytest.mark.parametrize("words", [("train.py",), ("-m", "train")], ids=["script", "module"])
def test_a_folder_runs_in_a_copy_of_what_would_go_to_workers(project: Path, run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words, "--lr", "1", code="project", requirements="lock.txt")
    assert ran.stderr == ""
    assert json.loads(ran.stdout) == ["__main__", "1.0", "model", ["net/model.py", "train.py"], ["--lr", "1"]]


def test_packages_are_installed_once_outside_the_checkout(project: Path, run: Run, tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        assert run("train.py", code="project", requirements="lock.txt", said=said).returncode == 0
    (sentence,) = said
    assert f"packages are installed into {tmp_path}/cache/tidewater/packages/" in sentence


def test_a_script_without_a_folder_has_the_modules_next_to_it(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.parent / "net.py").write_text("raise AssertionError('of the working directory')\n")
    (project / "train.py").write_text("import sys, net.model, secret\nprint(net.model.NAME, *sys.argv)\n")
    assert run("project/train.py", "--lr").stdout.split() == ["model", str(project / "train.py"), "--lr"]
    monkeypatch.chdir(project)
    assert run("-m", "net.model").returncode == 0


def test_a_file_that_is_ignored_is_missing_before_workers_start_or_else_in_a_worker(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "train.py").write_text("import secret\n")
    monkeypatch.chdir(project)
    with pytest.raises(
        UsageError, match=r"^train\.py, line 1, imports secret, and the workers would have no such module"
    ):
        run("train.py", code=".")
    (project / "train.py").write_text("if True:\n    import secret\n")
    ran = run("train.py", code=".")
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert "train.py, line 2, imports secret, and the worker has no such module" in line
    assert "set --code to the folder that has it, and check that the ignore file there doesn't name it" in line


def test_a_module_of_this_python_or_of_the_lock_is_no_mistake(project: Path, run: Run) -> None:
    (project / "train.py").write_text("import alpha, yaml, net.model\n")
    assert run("train.py", code="project", requirements="lock.txt").returncode == 0
    with pytest.raises(UsageError, match=r"^train\.py, line 1, imports alpha, and the workers would have"):
        run("project/train.py")


def test_an_import_error_of_the_scripts_own_is_not_hidden(project: Path, run: Run) -> None:
    (project / "train.py").write_text("raise ModuleNotFoundError('by hand')\n")
    ran = run("project/train.py")
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "ModuleNotFoundError: by hand")


def test_packages_for_another_torch_are_refused_before_anything_starts(project: Path, run: Run, tmp_path: Path) -> None:
    line = wheel(tmp_path / "wheels", "beta", metadata=("Requires-Dist: torch<1",))
    (tmp_path / "lock.txt").write_text(f"--no-index\n--find-links wheels\n{line}\n")
    with pytest.raises(CliError, match=r"beta 1\.0 needs torch<1, and the image has torch .*: choose another version"):
        run("train.py", code="project", requirements="lock.txt")


@pytest.mark.parametrize(
    ("words", "source", "sentence"),
    [
        pytest.param(("secret.py",), Source("project"), "is left out: .gitignore has the line 'secret.py'", id="left"),
        pytest.param(("-m", "no"), Source("project"), "is not in --code", id="no-module"),
        pytest.param(("x.py",), Source("nowhere"), "--code nowhere is not a folder", id="no-folder"),
        pytest.param(("project/train.py",), Source("", "no.txt"), "is not a file that can be read", id="no-lock"),
    ],
)
def test_a_mistake_is_one_sentence(project: Path, words: tuple[str, ...], source: Source, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        checked(words[0], words[1:], source, "tidewater run", ())
    assert sentence in refused.value.message
    assert "\n" not in refused.value.message


def test_the_name_of_a_job_is_that_of_the_script_or_the_module(project: Path) -> None:
    scripts = [("project/train.py",), ("-m", "net.model")]
    assert [checked(name, more, Source(), "", ()).name for name, *more in scripts] == ["train", "model"]


@pytest.mark.parametrize("command", ["run", "rehearse"])
def test_the_help_of_a_script_in_a_folder_is_its_own(
    project: Path, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [command, "--code", "project", "--requirements", "lock.txt", "train.py", "--help"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert json.loads(capfd.readouterr().out.splitlines()[-1])[-1] == ["--help"]
