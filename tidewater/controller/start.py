"""Entry point of the controller's zip: makes the packages available that the image lacks, then runs the controller.

    python3 controller.zip install       # in the init container
    python3 controller.zip ARGS          # `python3 -m tidewater.controller ARGS`, with those packages

In an image that has the packages in the locked versions, `install` takes milliseconds and uses no network. It runs
before there are any packages, so it uses the standard library and `contract` only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from tidewater.contract.controller_program import PACKAGES_DIRECTORY, REQUIREMENTS

_STOPPED = 128 + signal.SIGTERM


def locked() -> str:
    """Return the text of the requirements, each with its version and its hashes."""
    package, _, name = REQUIREMENTS.rpartition("/")
    return importlib.resources.files(package.replace("/", ".")).joinpath(name).read_text()


def missing(requirements: str) -> list[str]:
    """Return `name==version` of the requirements that can't be imported in this version."""
    wanted = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", requirements, flags=re.MULTILINE)
    return [f"{name}=={version}" for name, version in wanted if _installed(name) != version]


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def install(target: Path) -> None:
    """Install the requirements into `target`, unless the image has all of them.

    Raises:
        SystemExit: they can't be installed; the message says what is missing.
    """
    requirements = locked()
    absent = missing(requirements)
    if not absent:
        print("event=packages_present", flush=True)
        return
    print(f"event=installing packages={','.join(absent)}", flush=True)
    if importlib.util.find_spec("pip") is None:
        sys.exit(f"this image has neither pip nor {', '.join(absent)}: use an image with pip, or with these packages")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        options = ["--quiet", "--no-cache-dir", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options]
        status = subprocess.run([*pip, "--target", str(target), "-r", file.name], check=False).returncode
    if status != 0:
        sys.exit(f"pip can't install {', '.join(absent)}: the pod must reach the package index, or the image have them")


def stop(_signal: int, _frame: FrameType | None) -> None:
    """Exit before the controller begins. Without a handler, process 1 of a container ignores SIGTERM."""
    sys.exit(_STOPPED)


def main() -> None:
    """Install the packages, or run the controller."""
    signal.signal(signal.SIGTERM, stop)
    target = Path(PACKAGES_DIRECTORY)
    sys.path.insert(1, str(target))  # after the zip, before the image's packages, which may be of other versions
    if sys.argv[1:] == ["install"]:
        install(target)
    else:
        runpy.run_module("tidewater.controller", run_name="__main__", alter_sys=True)
