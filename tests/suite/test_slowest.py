"""The table of the modules that took longest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.sources import ROOT

EXPECTED = """\
| module | seconds |
|---|---|
| `tests/e2e/life/test_4_nodes.py` | 1,201 |
| `tests/test_b.py` | 6 |
| 2 others | 4 |
"""


def report(path: Path, *cases: tuple[str, float]) -> Path:
    texts = (
        f'<testcase classname="{module}" name="test_{at}" time="{took}"/>' for at, (module, took) in enumerate(cases)
    )
    path.write_text(f'<testsuites><testsuite name="pytest">{"".join(texts)}</testsuite></testsuites>')
    return path


def test_the_tests_of_a_module_are_added_up_over_all_reports_and_the_longest_comes_first(tmp_path: Path) -> None:
    nodes, other = "tests.e2e.life.test_4_nodes", "packages.torchx.tests.test_c"
    one = report(tmp_path / "tests.xml", ("tests.test_b", 5.5), (nodes, 1000.25), ("tests.test_a", 3), (nodes, 200.5))
    two = report(tmp_path / "tests-torchx.xml", (other, 1.0), ("tests.test_b", 0.7))
    command = [sys.executable, "-m", "tests.suite.slowest", str(one), str(two), "--number", "2"]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout == EXPECTED
