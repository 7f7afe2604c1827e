"""The wheels that `pip install .` and `pip install ./packages/MEMBER` build, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("tidewater", "packages", "pyproject.toml", "setup.py", "LICENSE")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "elasticdl_pb2*", "tests", "docs")
"""What a fresh clone does not have, and what no wheel is built from."""
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def build(folder: Path, member: str = ".") -> Path:
    """Return the wheel of the repository, or of a member.

    It is built in a copy, because setuptools leaves its work in the sources.
    """
    clone, out = folder / "clone", folder / "wheel"
    clone.mkdir(parents=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, clone / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, out], cwd=clone / member, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def unpack(wheel: Path, target: Path) -> Path:
    """Unpack a wheel, as an installation does; return the target."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(target)
    return target


def files(folder: Path) -> set[str]:
    """Return the paths of all files below a folder but the caches of Python."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in found}


def said(installed: Path, folder: Path, *command: str | Path) -> str:
    """Run a program in a folder with what is installed; return what it printed."""
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
