"""The order of a set of strings is the same in all workers, however a script is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.elastic.launch.test_launcher import Worker

SCRIPT = """
import os
print(os.getpid(), list({"cat", "dog", "owl", "eel", "ant"}), flush=True)
import tidewater
if __name__ == "__main__":
    raise SystemExit(tidewater.run(lambda config: None))
"""
"""Its command line is wrong, so the runtime ends before it imports torch."""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that starts the script, and returns what each of its starts printed, with process id 0."""
    (tmp_path / "split.py").write_text(SCRIPT)

    def run(*python: str, given: str = "", seed: str | None = None) -> list[str]:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
        environ |= {"PYTHONPATH": str(Path.cwd())} | ({} if seed is None else {"PYTHONHASHSEED": seed})
        command = [sys.executable, *(each.format(here=tmp_path) for each in python)]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=tmp_path, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        ) as process:
            out, error = process.communicate(given, timeout=60)
        assert "--job" in error
        assert process.returncode == 2
        return [line.replace(str(process.pid), "0") for line in out.splitlines()]

    return run


@pytest.mark.parametrize("python", [("{here}/split.py",), ("-m", "split")], ids=["file", "module"])
def test_a_set_has_the_same_order_in_every_start_of_a_script(
    run: Callable[..., list[str]], python: tuple[str, ...]
) -> None:
    again = run(*python)[-1]
    assert again.startswith("0 "), "it is not the same process"
    assert run(*python, seed="0") == [again]


@pytest.mark.parametrize("python", [("split.py",), ("-W", "ignore", "-um", "split")], ids=["file", "module"])
def test_a_program_that_changes_the_current_directory_is_found_again(
    run: Callable[..., list[str]], python: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "split.py").write_text(SCRIPT.replace("import os\n", "import os\nos.chdir('/')\n"))
    assert len(run(*python)) == 2


def test_another_module_of_the_same_name_in_the_new_directory_is_not_executed(
    run: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "split.py").write_text("raise SystemExit('wrong program')")
    (tmp_path / "split.py").write_text(SCRIPT.replace("import os\n", "import os\nos.chdir('copy')\n"))
    assert len(run("-m", "split")) == 1


HOSTS = {
    "IPython": "import builtins; builtins.__IPYTHON__ = True",
    "a debugger": "import sys; sys.settrace(lambda *_: None)",
    "pytest": "import os, pytest; os.environ['PYTEST_CURRENT_TEST'] = 'test_split'",
}


def test_a_program_that_another_one_runs_is_executed_once(run: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "host.py").write_text("import runpy\nrunpy.run_path('split.py', run_name='__main__')")
    assert len(run("host.py")) == 1
    assert len(run("-m", "host")) == 1


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS.keys())
def test_a_program_in_a_host_that_imports_it_is_executed_once(
    run: Callable[..., list[str]], host: str, tmp_path: Path
) -> None:
    (tmp_path / "split.py").write_text(f"{host}\n{SCRIPT}")
    assert len(run("split.py")) == 1


def test_a_hash_seed_that_is_given_counts(run: Callable[..., list[str]]) -> None:
    (five,) = run("{here}/split.py", seed="5")
    assert run("{here}/split.py", seed="0") != [five]


@pytest.mark.parametrize("python", [("-",), ("-I", "{here}/isolated.py")], ids=["standard input", "isolated"])
def test_a_program_that_cannot_be_executed_again_runs_once(
    run: Callable[..., list[str]], python: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "isolated.py").write_text(f"import sys\nsys.path.append({str(Path.cwd())!r})\n{SCRIPT}")
    assert len(run(*python, given=SCRIPT)) == 1


def test_the_processes_of_a_launcher_have_it_too(tmp_path: Path) -> None:
    worker = Worker(tmp_path, '(here / f"seed.{rank}").write_text(os.environ["PYTHONHASHSEED"])')
    worker.environ.pop("PYTHONHASHSEED", None)
    assert worker.run().returncode == 0
    assert [(tmp_path / f"seed.{rank}").read_text() for rank in (0, 1)] == ["0", "0"]
