"""Files and folders stay small enough to read, and each package says what a reader finds in it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.sources import ROOT, sources, written

MAX_LINES = 400
MAX_MODULES = 14

# Packages with an `__init__` that names every module and package in it.
WITH_A_TABLE = (
    "tidewater/cli",
    "tidewater/contract",
    "tidewater/controller",
    "tidewater/elastic/group",
    "tidewater/elastic/membership",
    "tidewater/elastic/peer",
    "tidewater/elastic/session",
    "tidewater/elasticjob",
    "tidewater/elasticjob/install",
    "tidewater/kube",
    "infra",
    "infra/preflight",
    "packages/torchx/src/tidewater_torchx",
    "scripts",
    "settings",
    "workloads",
    "workloads/devices",
)


def overfull(paths: Iterable[Path], root: Path) -> dict[str, int]:
    """Return the folders with more modules than they may hold, and how many they hold."""
    count = Counter(path.relative_to(root).parent.as_posix() for path in paths if path.name != "__init__.py")
    return {folder: held for folder, held in count.items() if held > MAX_MODULES}


def unmentioned(package: Path) -> list[str]:
    """Return the modules and packages that a package's docstring does not name at the beginning of a line."""
    inside = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    lines = (ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "").splitlines()
    named = {line.split()[0].strip("/") for line in lines if line.strip()}
    return sorted(inside - {"__init__"} - named)


def test_no_file_is_too_long_to_read() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    long = {name: count for name, count in lines.items() if count > MAX_LINES}
    assert not long, f"more than {MAX_LINES} lines, split by reason to change: {long}"


def test_no_folder_holds_too_many_modules() -> None:
    found = overfull(sources(), ROOT)
    assert not found, f"more than {MAX_MODULES} modules, make packages of what belongs together: {found}"


def test_an_overfull_folder_is_found(tmp_path: Path) -> None:
    files = {f"p/{letter}.py": "" for letter in "abcdefghijklmno"}
    paths = written(tmp_path, {"p/__init__.py": "", **files})
    assert overfull(paths, tmp_path) == {"p": 15}
    assert overfull(paths[:-1], tmp_path) == {}


def test_every_package_has_a_docstring() -> None:
    empty = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not empty, f"say in the docstring what a reader finds where: {empty}"


@pytest.mark.parametrize("package", WITH_A_TABLE)
def test_a_packages_docstring_names_what_is_in_it(package: str) -> None:
    missing = unmentioned(ROOT / package)
    assert not missing, f"{package}/__init__.py does not say what these are for: {', '.join(missing)}"


def test_a_module_that_the_docstring_leaves_out_is_found(tmp_path: Path) -> None:
    written(
        tmp_path,
        {"p/__init__.py": '"""Things.\n\na  the first\n"""\n', "p/a.py": "", "p/b.py": "", "p/q/__init__.py": ""},
    )
    assert unmentioned(tmp_path / "p") == ["b", "q"]
