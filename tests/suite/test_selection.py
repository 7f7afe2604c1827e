"""Which tests a change has run again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.suite import selection
from tests.suite.selection import Tree, check, record

FILES = {
    "pyproject.toml": "",
    "conftest.py": "import shared\n",
    "shared.py": "",
    "README.md": "",
    "ours/__init__.py": "",
    "ours/a.py": "from . import b\n",
    "ours/b.py": "",
    "ours/c.py": "",
    "ours/run.py": "",
    "ours/table.yaml": "",
    "packages/member/src/member/one.py": "",
    "packages/conftest.py": "",
    "tests/test_a.py": "import ours.a\n",
    "tests/test_c.py": '"""As ours.b does."""\ndef test_c():\n    from ours.c import x\n',
    "tests/test_run.py": "command = ['python', '-m', 'ours.run']\n",
    "tests/test_table.py": "(ROOT / 'ours' / 'table.yaml').read_text()\n",
    "tests/test_copy.py": "command = ['git', 'ls-files', '-z']\n",
    "tests/test_folder.py": "(ROOT / 'data').rglob('*')\n",
    "data/sub/one.csv": "",
    "tests/test_member.py": "from member import one\n",
    "tests/test_long.py": "pytestmark = [pytest.mark.e2e, pytest.mark.soak]\nimport ours.a\n",
}


def tree(**changed: str) -> Tree:
    texts = FILES | {path.replace("__", "/"): text for path, text in changed.items()}
    return Tree({path: text.encode() for path, text in texts.items()})


EVERY = "test_a test_c test_copy test_folder test_member test_run test_table"


@pytest.mark.parametrize(
    ("path", "run"),
    [
        pytest.param("ours/b.py", "test_a test_copy", id="imported-by-an-import"),
        pytest.param("ours/c.py", "test_c test_copy", id="imported-in-a-function"),
        pytest.param("ours/run.py", "test_copy test_run", id="named-in-a-command"),
        pytest.param("ours/table.yaml", "test_copy test_table", id="a-file-named-in-the-text"),
        pytest.param("ours/__init__.py", "test_a test_c test_copy test_run", id="a-package-around-what-is-imported"),
        pytest.param("packages/member/src/member/one.py", "test_copy test_member", id="of-a-member"),
        pytest.param("tests/test_a.py", "test_a", id="a-test"),
        pytest.param("shared.py", EVERY, id="of-a-conftest"),
        pytest.param("pyproject.toml", EVERY, id="settings"),
        pytest.param("data/sub/one.csv", "test_copy test_folder", id="in-a-folder-that-is-listed"),
        pytest.param("README.md", "", id="prose"),
    ],
)
def test_a_change_has_those_tests_run_that_reach_the_file(path: str, run: str) -> None:
    before = tree()
    after = Tree({**before.files, path: before.files[path] + b"# changed\n"})
    changed = [test for test in after.tests() if after.key(test) != before.key(test)]
    assert changed == [f"tests/{name}.py" for name in run.split()]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with two tests, on a machine on which nothing has passed."""
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "clone"
    for path, text in {
        "ours/a.py": "A = 1\n",
        "tests/test_a.py": "from ours.a import A\ndef test_a():\n    assert A == 1\n",
        "tests/test_b.py": "def test_b():\n    pass\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        os.utime(root / path, (time.time() - 60,) * 2)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".git/info/exclude").write_text("build\n__pycache__\n.pytest_cache\n")
    monkeypatch.setattr(selection, "REPORT", root / "build/tests.xml")
    return root


def run(root: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={selection.REPORT}", f"--rootdir={root}", "-p"]
    return check(root, [*command, "no:cacheprovider"])


def test_what_has_passed_is_left_out_until_something_that_it_reaches_changes(
    clone: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(clone) == 0
    assert "2 of 2 test modules are run" in capfd.readouterr().out
    assert run(clone) == 0
    said = capfd.readouterr().out
    assert "0 of 2 test modules are run" in said
    assert "tests/test_b.py" in said
    (clone / "ours/a.py").write_text("A = 2\n")
    for _ in range(2):  # a failure is not remembered
        assert run(clone) == 1
        said = capfd.readouterr().out
        assert "1 of 2 test modules are run" in said
        assert "test_a" in said


def test_what_is_changed_during_a_run_has_not_passed(clone: Path) -> None:
    cases = "".join(f'<testcase classname="tests.test_{name}" name="test_{name}"/>' for name in "ab")
    selection.REPORT.parent.mkdir()
    selection.REPORT.write_text(f'<testsuites><testsuite time="10">{cases}</testsuite></testsuites>')
    os.utime(clone / "ours/a.py")
    record(clone, selection.REPORT)
    tree = selection.checkout(clone)
    assert [path.name for path in selection.green().iterdir()] == [tree.key("tests/test_b.py")]
