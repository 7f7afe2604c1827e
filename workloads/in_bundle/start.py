"""Entry point of the code bundle: the bundle's `__main__.py`, run in the pod as `python3 bundle.zip ARGS`.

It adds the packages that a job has installed and those of the bundle that the image lacks, then runs the trainer. It
uses no network. `train` runs the user's own script if the bundle holds one. If the bundle holds a folder with a script,
the folder is unpacked next to the bundle. The script runs as with `python SCRIPT` or `python -m MODULE` in the folder.

It sets a handler for SIGTERM until the trainer sets its own: without one, process 1 of a container ignores SIGTERM.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import signal
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

PACKAGES = "packages"
"""Folder of the bundle with a folder for each module: the module itself, and what it needs."""
SCRIPT = "training_script"
PROJECT = "training_project"
DEFAULT_SCRIPT = "trainer.train"
INSTALLED = "TIDEWATER_PACKAGES"
USAGE, LEFT = 2, 143
"""As in tidewater/contract/, which this file cannot import: the bundle's tests compare the two."""


def absent(modules: Sequence[str]) -> list[str]:
    """Return the modules that can't be imported; another version in the image is accepted."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def brought(names: Sequence[str]) -> list[str]:
    """Return the modules that a bundle with files of these names brings."""
    return sorted({name.split("/")[1] for name in names if name.startswith(f"{PACKAGES}/")})


def unpack(bundle: Path, module: str, target: Path) -> Path:
    """Return the folder in `target` with the module and what it needs."""

    def fill(draft: Path) -> Path:
        with zipfile.ZipFile(bundle) as archive:
            wanted = [name for name in archive.namelist() if name.startswith(f"{PACKAGES}/{module}/")]
            archive.extractall(draft, wanted)
        return draft / PACKAGES / module

    return placed(target / module, fill)


def unpack_project(bundle: Path) -> Path:
    """Return the user's own folder, which is next to the bundle."""

    def fill(draft: Path) -> Path:
        with (
            zipfile.ZipFile(bundle) as archive,
            archive.open(f"{PROJECT}.tar") as packed,
            tarfile.open(fileobj=packed, encoding="utf-8") as tar,
        ):
            if hasattr(tarfile, "data_filter"):  # before Python 3.11.4 there is none, and 3.12 warns without one
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(draft)
        return draft / PROJECT

    return placed(bundle.parent / PROJECT, fill)


def placed(folder: Path, fill: Callable[[Path], Path]) -> Path:
    """Return `folder`, which `fill` makes in an empty one that it is given, if it isn't there.

    Another process of this worker may make it at the same time, and an earlier start of this container may have done
    so. The folder is there as a whole or not at all.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        fill(draft).rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    shutil.rmtree(draft)
    return folder


def installed() -> list[str]:
    """Return the folder of the packages that a job has installed for this Python, if there is to be one.

    Raises:
        SystemExit: it isn't there.
    """
    if INSTALLED not in os.environ:
        return []
    folder = Path(os.environ[INSTALLED], str(sysconfig.get_config_var("SOABI")))
    if not folder.is_dir():
        print(f"trainer: {folder} is missing: the job that installs `trainingPackages` makes it", file=sys.stderr)
        sys.exit(USAGE)
    return [str(folder)]


def leave(_signal: int, _frame: FrameType | None) -> None:
    """Exit before training begins."""
    sys.exit(LEFT)


def run_script(bundle: Path, names: Sequence[str]) -> None:
    """Run the user's own script, or the one that comes with the project.

    Raises:
        SystemExit: the script ends, or what it imports isn't there.
    """
    from tidewater.elastic.launch import project

    try:
        if f"{PROJECT}.tar" in names:
            folder = unpack_project(bundle)
            with zipfile.ZipFile(bundle) as archive:
                script = archive.read(f"{PROJECT}.txt").decode()
            project.run(folder, script)
        else:
            own = f"{SCRIPT}.py" in names
            runpy.run_module(SCRIPT if own else DEFAULT_SCRIPT, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        print(f"trainer: {project.sentence(error, 'trainingPackages', 'trainingCode')}", file=sys.stderr)
        sys.exit(USAGE)


def main() -> None:
    """Prepare the interpreter, then run the trainer in it."""
    signal.signal(signal.SIGTERM, leave)
    bundle = Path(sys.argv[0])
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
    # After the bundle and before the image's packages, which may have other versions. People's own come first.
    sys.path[1:1] = chosen = installed()
    for module in absent(brought(names)):
        sys.path.insert(1 + len(chosen), str(unpack(bundle, module, bundle.parent / PACKAGES)))
    trains = sys.argv[1:2] == ["train"]
    own = trains and not {f"{SCRIPT}.py", f"{PROJECT}.tar"}.isdisjoint(names)
    draws = not own and sys.argv[1:2] != ["packages"]
    if lacking := absent(["torch", "numpy", *(["PIL"] if draws else [])]):
        text = (
            f"this image lacks {' and '.join(lacking)}: use one with PyTorch and torchvision, or build the Dockerfile's"
        )
        print(f"trainer: {text}", file=sys.stderr)
        sys.exit(USAGE)
    if trains:
        del sys.argv[1]
        run_script(bundle, names)
    else:
        runpy.run_module("tidewater.elastic", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
