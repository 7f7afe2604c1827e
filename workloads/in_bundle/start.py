"""Entry point of the code bundle: the bundle's `__main__.py`, run in the pod as `python3 bundle.zip ARGS`.

Installs the packages that the sub-command needs and the image lacks, then hands over to the trainer. In an image that
has them it costs a few milliseconds and touches no network. `train` is the user's own script if the bundle holds one.

Until the trainer has set its own, a handler for SIGTERM stands: process 1 of a container ignores signals without.
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
"""As in contract/, which can't be imported before this file has run."""


def missing(requirements: list[str]) -> list[str]:
    """The `name==version` lines whose package isn't there in any version: an image's own choice stands."""
    absent = []
    for line in requirements:
        try:
            importlib.metadata.version(line.split("==")[0])
        except importlib.metadata.PackageNotFoundError:
            absent.append(line)
    return absent


def requirements(bundle: Path, arguments: Sequence[str], checkpoints: str) -> list[str]:
    """The pinned packages that the bundle asks for on behalf of a command line.

    They are the sub-command's (none for one that the bundle doesn't know), and S3's where an address of S3 is given.
    """
    wanted = [arguments[0] if arguments else "train"]
    if any("s3://" in each for each in (*arguments, checkpoints)):
        wanted.append("s3")
    with zipfile.ZipFile(bundle) as archive:
        lists = [zipfile.Path(archive, f"requirements/{name}.txt") for name in wanted]
        return [line for listed in lists if listed.exists() for line in listed.read_text().split()]


def has_script(bundle: Path) -> bool:
    """Whether the user's own training script takes the place of the one that comes along."""
    with zipfile.ZipFile(bundle) as archive:
        return f"{SCRIPT}.py" in archive.namelist()


def leave(_signal: int, _frame: FrameType | None) -> None:
    """Leaves before training began."""
    sys.exit(LEFT)


def main() -> None:
    """Prepares the interpreter, then becomes the trainer."""
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
