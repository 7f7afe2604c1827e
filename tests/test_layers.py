"""Who may import whom (see docs and the style guide): an edge that isn't listed here is a mistake.

Data flows one way, settings → infra → workloads, and only `__main__.py` composes. The processes that run
elsewhere (trainer, controller, localcloud) share nothing but `contract`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 400

# Part → the parts of ours that it may import, beside itself.
MAY_IMPORT = {
    "contract": set[str](),
    "settings": {"contract"},
    "infra": {"settings", "contract"},
    "workloads": {"settings", "contract", "infra.outputs"},
    "trainer": {"contract"},
    "controller": {"contract"},
    "localcloud": set[str](),
    "localcloud.standins": set[str](),
    "scripts.toolchain": set[str](),
    "scripts": set[str](),
    "examples": {"contract", "trainer"},
    "__main__": {"settings", "contract", "infra", "workloads"},
}
OURS = {part.split(".")[0] for part in MAY_IMPORT} | {"tests", "benchmarks"}
STANDARD_LIBRARY_ONLY = ("contract", "scripts/toolchain", "controller/scale.py")


def sources() -> list[Path]:
    """The checkout's Python files, tracked or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports, wherever in the file."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def part_of(path: Path) -> str | None:
    """The part of `MAY_IMPORT` that a file belongs to, the narrowest one; None for tests and benchmarks."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if within(name, "localcloud.tests"):
        return None
    fitting = [part for part in MAY_IMPORT if within(name, part)]
    return max(fitting, key=len, default=None)


def within(name: str, part: str) -> bool:
    """Whether a dotted name is `part` or lies in it."""
    return name == part or name.startswith(f"{part}.")


def forbidden(path: Path) -> list[str]:
    """The imports in a file that cross a border the wrong way."""
    part = part_of(path)
    if part is None:
        return []
    allowed = {part, *MAY_IMPORT[part]}
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}, and {part} may import of ours only {sorted(allowed)}"
        for line, name in imports(path)
        if name.split(".")[0] in OURS and not any(within(name, other) for other in allowed)
    ]


def test_every_import_goes_the_way_the_design_says() -> None:
    wrong = [line for path in sources() for line in forbidden(path)]
    assert not wrong, "\n".join(wrong)


def test_a_border_crossed_the_wrong_way_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "infra").mkdir()
    module = tmp_path / "infra" / "cluster.py"
    module.write_text("def late():\n    from workloads import etcd\n\nimport settings\nimport infra.network\n")
    assert forbidden(module) == [
        "infra/cluster.py:2 imports workloads.etcd, and infra may import of ours only ['contract', 'infra', 'settings']"
    ]


@pytest.mark.parametrize("place", STANDARD_LIBRARY_ONLY)
def test_what_runs_on_a_bare_python_imports_nothing_else(place: str) -> None:
    known = sys.stdlib_module_names | OURS
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources()
        if path.is_relative_to(ROOT / place)
        for line, name in imports(path)
        if name.split(".")[0] not in known
    ]
    assert not wrong, "\n".join(wrong)


def test_only_settings_reads_the_configuration() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for path in sources()
        if part_of(path) in ("settings", "infra", "workloads", "__main__")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "pulumi.Config"
    }
    assert readers <= {"settings/parsing.py"}


def test_the_program_never_asks_whether_it_runs_on_the_one_machine_cloud() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources()
        if part_of(path) in ("settings", "infra", "workloads", "__main__")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If | ast.IfExp) and "local" in ast.unparse(node.test).lower()
    ]
    assert not wrong, f"decide by a setting instead: {', '.join(wrong)}"


def test_no_file_is_too_long_to_read() -> None:
    long = {str(path.relative_to(ROOT)): count for path in sources() if (count := lines_of(path)) > MAX_LINES}
    assert not long, f"more than {MAX_LINES} lines, split by reason to change: {long}"


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())
