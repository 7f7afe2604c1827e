"""The package as users install it: built from a clone, next to the repository's own, and used by `torchx`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torchx.schedulers import DEFAULT_SCHEDULER_MODULES

from tests import wheel

PLUGIN = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `pip install '.[cli]' ./packages/torchx` installs of ours."""
    target = tmp_path_factory.mktemp("site-packages")
    for member in (".", "packages/torchx"):
        wheel.unpack(wheel.build(tmp_path_factory.mktemp("build"), member), target)
    return target


def said(installed: Path, *command: str | Path) -> str:
    return wheel.said(installed, installed.parent, *command)


def test_every_module_is_in_the_package(installed: Path) -> None:
    assert wheel.files(installed / "tidewater_torchx") == wheel.files(PLUGIN / "src" / "tidewater_torchx")


def test_an_installation_keeps_torchx_own_schedulers(installed: Path) -> None:
    script = "import torchx.schedulers as s; print(*s.get_scheduler_factories())"
    names = said(installed, sys.executable, "-c", script).split()
    assert set(names) == {"tidewater", *DEFAULT_SCHEDULER_MODULES}


@pytest.mark.parametrize("command", ["run", "status", "describe", "list", "cancel", "log", "delete"])
def test_a_command_whose_scheduler_refuses_can_end_with_a_sentence(installed: Path, command: str) -> None:
    script = f"import torchx.cli.main as m; print(type(m.get_sub_cmds()[{command!r}]).__module__)"
    assert said(installed, sys.executable, "-c", script).strip() == "tidewater_torchx.commands"


def test_an_installation_runs_without_the_clone(installed: Path) -> None:
    torchx = Path(sys.executable).with_name("torchx")
    options = said(installed, torchx, "runopts")
    assert "validate_spec=VALIDATE_SPEC" in options
    assert "ray: No module named 'ray'" in options.replace("\x1b[0m", "")
    script = "from tidewater_torchx import workspace as found; print(found.__file__, found.pack(None).key[:5])"
    assert said(installed, sys.executable, "-c", script).split() == [
        str(installed / "tidewater_torchx" / "workspace.py"),
        "code/",
    ]


def test_the_package_requires_the_distribution_that_it_imports_and_torchx_of_one_release(installed: Path) -> None:
    (metadata,) = installed.glob("tidewater_torchx-*.dist-info/METADATA")
    required = {line.split()[1].rstrip(";") for line in metadata.read_text().splitlines() if "Requires-Dist:" in line}
    assert {"torchx==0.7.*", "tidewater[cli]==0.1.0"} <= required
