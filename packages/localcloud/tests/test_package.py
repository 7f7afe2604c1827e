"""localcloud can be installed as a project of its own."""

from __future__ import annotations

from pathlib import Path

import localcloud

from tests import wheel


def test_every_file_is_installed(tmp_path: Path) -> None:
    installed = wheel.unpack(wheel.build(tmp_path, "packages/localcloud"), tmp_path / "site")
    assert wheel.files(installed / "localcloud") == wheel.files(Path(localcloud.__file__).parent)
