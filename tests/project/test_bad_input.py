"""Bad input is one sentence, which docs/training/code.md shows as it is."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.elastic.packages.wheels import locked, wheel
from tests.sources import ROOT
from tidewater.contract.archive import to_zip
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.launch import project as launch
from tidewater.elastic.observe.log import Log
from tidewater.elastic.packages.install import install
from tidewater.project import folder, imports, lock
from tidewater.project.pack import lock_files

MIB = 1 << 20
OPTIONS = "--no-index\n--find-links ."


def of_a_lock(place: Path, line: str) -> str:
    """Return what is wrong with a lock of one line."""
    _, (mistake,) = lock.parse(f"{OPTIONS}\n{line}", place)
    return mistake


def of_an_installation(place: Path, line: str) -> str:
    """Return why the packages of a lock can't be installed."""
    packages, mistakes = lock.parse(f"{OPTIONS}\n{line}", place)
    assert mistakes == []
    bundle = place / "bundle.zip"
    bundle.write_bytes(to_zip(lock_files(packages)))
    with pytest.raises(ConfigError) as refused:
        install(bundle, place / "out", Log("test", stream=io.StringIO()))
    return str(refused.value)


def without_a_hash(place: Path) -> str:
    return of_a_lock(place, "timm==1.0.9")


def torch_itself(place: Path) -> str:
    return of_a_lock(place, f"torch==2.4.0 --hash=sha256:{'0' * 64}")


def another_torch(place: Path) -> str:
    line = wheel(place, "fastai", "2.5.0", metadata=("Requires-Dist: torch<1.11",))
    return re.sub(r"torch \d[^:]*:", "torch 2.14.1:", of_an_installation(place, line))


def a_source_distribution(place: Path) -> str:
    source = place / "pyyaml-5.1.tar.gz"
    with tarfile.open(source, "w:gz"):
        pass
    return of_an_installation(place, locked(source, "pyyaml", "5.1"))


def two_gigabytes(place: Path) -> str:
    for name, mib in {"train.py": 0, "data/train.bin": 1536, "data/val.bin": 512}.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).touch()
        os.truncate(place / name, mib * MIB)  # takes no space
    (mistake,) = folder.read(place, "train.py", "trainingCode").mistakes
    return mistake


def an_ignored_script(place: Path) -> str:
    (place / ".gitignore").write_text("train*\n")
    (place / "train.py").touch()
    (place / "model.py").touch()
    return folder.read(place, "train.py", "trainingCode").wrong_script


def an_absent_module(place: Path) -> str:
    (place / "train.py").write_text("import json\nimport timm\n")
    line = [sys.executable, "-m", launch.__name__, str(place), "train.py"]
    ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    return ran.stderr.strip().removeprefix("trainer: ").replace(f"{place}/", "")


def an_import_that_is_known_to_fail(place: Path) -> str:
    (place / "train.py").write_text("import json\nimport timm\n")
    (found,) = imports.outside(place, "train.py", lambda name: (place / name).exists())
    return imports.sentence(found, "--requirements", "--code")


@pytest.mark.parametrize(
    "cause",
    [
        without_a_hash,
        torch_itself,
        another_torch,
        a_source_distribution,
        two_gigabytes,
        an_ignored_script,
        an_import_that_is_known_to_fail,
        an_absent_module,
    ],
)
def test_bad_input_is_the_sentence_in_the_documentation(
    cause: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))  # pip looks for the source distribution there
    sentence = cause(tmp_path)
    assert "\n" not in sentence
    assert f"| {sentence} |" in (ROOT / "docs" / "training" / "code.md").read_text()
