"""The packages of the code bundle: whole, unchanged, in the tested versions, and for any image."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from pathlib import Path

import pulumi
import pytest

from tests import graph
from workloads import packages


def needed(name: str) -> set[str]:
    """Return the packages that one needs without extras, by the names that package indexes use."""
    listed = importlib.metadata.requires(name) or []
    return {re.split(r"[ (<>=!;\[]", each)[0].lower() for each in listed if "extra ==" not in each}


@pytest.mark.parametrize("module", packages.GROUPS)
def test_a_module_brings_all_that_it_needs(module: str) -> None:
    names = packages.GROUPS[module]
    assert {other for name in names for other in needed(name)} <= set(names)


@pytest.mark.parametrize("module", packages.GROUPS)
def test_the_licences_travel_too_and_nothing_that_differs_between_machines(module: str) -> None:
    found = packages.contents(module)
    assert f"{module}/__init__.py" in found
    assert len([path for path in found if path.endswith(".dist-info/METADATA")]) == len(packages.GROUPS[module])
    assert any("LICENSE" in path for path in found)
    assert not [path for path in found if path.endswith((".pyc", "INSTALLER", "RECORD", ".so")) or ".." in path]


def test_the_lock_of_the_one_machine_cloud_has_the_programs_versions_and_only_it_has_an_aws() -> None:
    program, cloud = (
        packages.locked((graph.ROOT / "requirements" / name).read_text()) for name in ("program.txt", "stack.txt")
    )
    assert {name: cloud.get(name) for name in program} == program
    assert "awscli" in cloud
    assert not {"awscli", "moto"} & set(program)


def test_the_lock_of_the_program_has_the_workers_versions() -> None:
    program = packages.locked((graph.ROOT / "requirements" / "program.txt").read_text())
    workers = packages.locked(packages.LOCK.read_text())
    names = [name for module, group in packages.GROUPS.items() if module != packages.PIP for name in group]
    assert {name: program[name] for name in names} == {name: workers[name] for name in names}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `six` in which a test may change something."""
    (source,) = {path.locate() for path in importlib.metadata.files("six") or () if path.name == "METADATA"}
    folder = Path(str(source)).parent
    shutil.copytree(folder, tmp_path / folder.name)
    shutil.copy(folder.parent / "six.py", tmp_path)
    monkeypatch.setattr(packages, "GROUPS", {"six": ("six",)})
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_changed_file_is_refused_by_its_path(installed: Path) -> None:
    assert "six.py" in packages.contents("six")
    with (installed / "six.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(pulumi.RunError, match=r"six\.py is not the file that was installed: .*--force-reinstall"):
        packages.contents("six")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        pytest.param(
            "METADATA", "Version: 1", "Version: 0", r"six 0\S+ is installed, and the workers' is 1", id="version"
        ),
        pytest.param("WHEEL", "Purelib: true", "Purelib: false", r"six \S+ has compiled files", id="compiled"),
    ],
)
def test_a_package_that_would_not_run_there_is_refused(
    installed: Path, file: str, old: str, new: str, message: str
) -> None:
    (path,) = installed.glob(f"six-*/{file}")
    path.write_text(path.read_text().replace(old, new, 1).replace("Metadata-Version: 0", "Metadata-Version: 1"))
    with pytest.raises(pulumi.RunError, match=message):
        packages.contents("six")


def test_an_absent_package_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "GROUPS", {"x": ("no-such-package",)})
    monkeypatch.setattr(packages, "locked", lambda lock: {"no-such-package": "1"})
    with pytest.raises(pulumi.RunError, match=r"no-such-package is not installed.*requirements/program\.txt"):
        packages.contents("x")
