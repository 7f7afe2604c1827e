"""The checkout's Python files, their dotted names and their imports, for the tests of its structure."""

from __future__ import annotations

import ast
import contextlib
import functools
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def sources() -> list[Path]:
    """Return the checkout's Python files, tracked or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def product() -> list[Path]:
    """Return the files of `sources` that are neither tests nor benchmarks."""
    return [
        path for path in sources() if module_name(path, ROOT).split(".")[0] not in ("tests", "benchmarks", "packages")
    ]


def written(root: Path, files: Mapping[str, str]) -> list[Path]:
    """Write a small source tree for a test and return its files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [root / name for name in files]


def module_name(path: Path, root: Path) -> str:
    """Return the dotted name that imports a file."""
    parts = path.relative_to(root).with_suffix("").parts
    if parts[0] == "packages" and parts[2:3] == ("src",):
        parts = parts[3:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a file imports, wherever in the file."""
    package = path.relative_to(root).parent.parts
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


@functools.cache
def _nodes(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    return tuple(node for node in ast.walk(_parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom))


def _parsed(path: Path) -> ast.Module:
    # CPython 3.11 counts the depth of this for all threads together: another one's parsing can make it fail.
    # https://github.com/python/cpython/issues/106905
    with contextlib.suppress(SystemError):
        return ast.parse(path.read_text())
    return ast.parse(path.read_text())
