"""What an installation brings, and that the stack takes the lock as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tidewater.project.lock import parse

PACKAGE = Path(__file__).parents[1]


def test_the_stack_takes_the_lock_as_it_is() -> None:
    packages, mistakes = parse((PACKAGE / "requirements.txt").read_text(), PACKAGE)
    assert mistakes == []
    assert "transformers==5.24.0" in packages.lock


def test_the_lock_has_what_the_package_needs_and_the_tests_use() -> None:
    wanted = [
        Requirement(text) for text in tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    lines = (PACKAGE / "requirements.txt").read_text().splitlines()
    locked = dict(line.split(" ")[0].split("==") for line in lines if "==" in line)
    for need in wanted:
        if need.name not in ("tidewater", "torch"):
            assert need.specifier.contains(locked[need.name])
    tested = (PACKAGE.parents[1] / "requirements" / "libraries.txt").read_text()
    assert [f"{name}=={version}" in tested for name, version in locked.items() if f"{name}==" in tested] != []
    assert all(f"{name}=={version}" in tested for name, version in locked.items() if f"\n{name}==" in tested)
