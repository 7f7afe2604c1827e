"""The copy that a benchmark's workers run from contains everything that they import."""

from __future__ import annotations

import ast

import pytest

from benchmarks.elastic.systems import CODE, ROOT

OURS = {path.parent.name for path in ROOT.glob("*/__init__.py")} | set(CODE)


RUN = ["benchmarks/elastic/workers", "tidewater/contract", "tidewater/elastic", "trainer"]
"""What the workers run; the rest of `benchmarks` runs in the driver."""


@pytest.mark.parametrize("folder", RUN)
def test_every_package_that_the_workers_import_is_copied(folder: str) -> None:
    imported = {
        name.partition(".")[0]
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in names_of(node)
    }
    assert imported & OURS <= set(CODE)


def names_of(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
