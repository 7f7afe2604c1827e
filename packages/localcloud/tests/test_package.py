"""localcloud can be installed as a project of its own."""

from __future__ import annotations

from pathlib import Path

import localcloud

from tests import wheel


def test_every_file_is_installed(tmp_path: Path) -> None:
    def files(folder: Path) -> set[str]:
        found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(folder).as_posix() for path in found}

    installed = wheel.unpack(wheel.build(tmp_path, "packages/localcloud"), tmp_path / "site")
    assert files(installed / "localcloud") == files(Path(localcloud.__file__).parent)
