"""The command as its users install it: built from a clone, and used without it."""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

import elasticdl
import pytest

from tests import wheel

PACKAGE = Path(elasticdl.__file__).parent
MAIN = "import sys; from elasticdl.client.app import main; main(sys.argv[1:])"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `pip install '.[elasticdl]'` installs of ours."""
    return wheel.unpack(wheel.build(tmp_path_factory.mktemp("build")), tmp_path_factory.mktemp("site-packages"))


def test_every_file_that_the_command_needs_is_in_the_package(installed: Path) -> None:
    assert wheel.files(PACKAGE) == wheel.files(installed / "elasticdl")


def test_an_installation_writes_a_zoo_without_the_clone(installed: Path, tmp_path: Path) -> None:
    points = configparser.ConfigParser()
    points.read(next(installed.glob("tidewater-*.dist-info/entry_points.txt")))
    assert points["console_scripts"]["elasticdl"] == "elasticdl.client.app:main"
    wheel.said(installed, tmp_path, sys.executable, "-c", MAIN, "zoo", "init", "zoo")
    assert (tmp_path / "zoo" / "mnist" / "mnist_functional_api.py").is_file()
    assert (tmp_path / "zoo" / "Dockerfile").is_file()
