"""Entry point of the code bundle: the bundle's `__main__.py`, run in the pod as `python3 bundle.zip ARGS`.

It installs the packages that the sub-command needs and the image lacks, then runs the trainer. In an image that has
them it takes a few milliseconds and uses no network. `train` runs the user's own script if the bundle holds one.

It sets a handler for SIGTERM until the trainer sets its own: without one, process 1 of a container ignores SIGTERM.
"""

from __future__ import annotations

import importlib.metadata
import os
import runpy
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

SITE_PACKAGES = "site-packages"
SCRIPT = "training_script"
DEFAULT_SCRIPT = "examples.images.train"
CHECKPOINTS = "TIDEWATER_CHECKPOINTS"
LEFT = 143
"""As in contract/, which this file cannot import: the bundle's tests compare the two."""


def missing(requirements: list[str]) -> list[str]:
    """Return the `name==version` lines whose package is not installed; another version in the image is accepted."""
    absent = []
    for line in requirements:
        try:
            importlib.metadata.version(line.split("==")[0])
        except importlib.metadata.PackageNotFoundError:
            absent.append(line)
    return absent


def requirements(bundle: Path, arguments: Sequence[str], checkpoints: str) -> list[str]:
    """Return the pinned packages that a command line needs.

    These are the sub-command's (none for an unknown one), and S3's if the command line has an `s3://` address.
    """
    wanted = [arguments[0] if arguments else "train"]
    if any("s3://" in each for each in (*arguments, checkpoints)):
        wanted.append("s3")
    with zipfile.ZipFile(bundle) as archive:
        lists = [zipfile.Path(archive, f"requirements/{name}.txt") for name in wanted]
        return [line for listed in lists if listed.exists() for line in listed.read_text().split()]


def has_script(bundle: Path) -> bool:
    """Return whether the bundle holds the user's own training script."""
    with zipfile.ZipFile(bundle) as archive:
        return f"{SCRIPT}.py" in archive.namelist()


def leave(_signal: int, _frame: FrameType | None) -> None:
    """Exit before training begins."""
    sys.exit(LEFT)


def main() -> None:
    """Prepare the interpreter, then run the trainer in it."""
    signal.signal(signal.SIGTERM, leave)
    bundle = Path(sys.argv[0])
    target = bundle.parent / SITE_PACKAGES
    sys.path.append(str(target))
    absent = missing(requirements(bundle, sys.argv[1:], os.environ.get(CHECKPOINTS, "")))
    if absent:
        print(f"event=installing packages={','.join(absent)}", flush=True)
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-cache-dir",
            "--target",
            str(target),
            *absent,
        ]
        subprocess.run(install, check=True)
        importlib.invalidate_caches()
    if sys.argv[1:2] == ["train"]:
        del sys.argv[1]
        runpy.run_module(SCRIPT if has_script(bundle) else DEFAULT_SCRIPT, run_name="__main__", alter_sys=True)
    else:
        runpy.run_module("trainer", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
