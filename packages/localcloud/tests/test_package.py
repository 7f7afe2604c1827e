"""localcloud can be installed as a project of its own."""

from __future__ import annotations

import tomllib
from pathlib import Path

HERE = Path(__file__).parents[1]


def test_every_package_is_installed() -> None:
    settings = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = (
        path.parent.relative_to(HERE / "src").parts for path in (HERE / "src" / "localcloud").rglob("__init__.py")
    )
    packages = {".".join(parts) for parts in folders}
    assert set(settings["packages"]) == packages
