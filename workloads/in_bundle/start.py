"""Entry point of the code bundle: the bundle's `__main__.py`, run in the pod as `python3 bundle.zip ARGS`.

Installs the packages that the sub-command needs and the image lacks, then hands over to the trainer. In an image that
has them it costs a few milliseconds and touches no network.

Until the trainer has set its own, a handler for SIGTERM stands: process 1 of a container ignores signals without.
"""

from __future__ import annotations

import importlib.metadata
import runpy
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import FrameType

SITE_PACKAGES = "site-packages"
LEFT = 143
"""As in contract/exit_codes.py, which can't be imported before this file has run."""


def missing(requirements: list[str]) -> list[str]:
    """The `name==version` lines whose package isn't there in any version: an image's own choice stands."""
    absent = []
    for line in requirements:
        try:
            importlib.metadata.version(line.split("==")[0])
        except importlib.metadata.PackageNotFoundError:
            absent.append(line)
    return absent


def requirements(bundle: Path, command: str) -> list[str]:
    """The pinned packages that the bundle asks for on behalf of a sub-command; none for one that it doesn't know."""
    with zipfile.ZipFile(bundle) as archive:
        listed = zipfile.Path(archive, f"requirements/{command}.txt")
        return listed.read_text().split() if listed.exists() else []


def leave(_signal: int, _frame: FrameType | None) -> None:
    """Leaves before training began."""
    sys.exit(LEFT)


def main() -> None:
    """Prepares the interpreter, then becomes the trainer."""
    signal.signal(signal.SIGTERM, leave)
    bundle = Path(sys.argv[0])
    target = bundle.parent / SITE_PACKAGES
    sys.path.append(str(target))
    absent = missing(requirements(bundle, sys.argv[1] if len(sys.argv) > 1 else "train"))
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
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
