"""Installs people's packages into a folder of the shared volume, once: the ``packages`` sub-command.

    python3 bundle.zip packages --bundle bundle.zip --out /data/packages/0123456789

The bundle has the lock, and wheels that travel with it. Below `--out` the packages are in a folder that is named after
the Python that they are for, so that an image with another one gets its own. The folder is complete or absent: see
`storage.filled`. pip verifies the hash of each wheel and builds nothing. It comes with the bundle too, so any image
does, and its messages are known. On other clusters than the stack's, and on one machine, pip is the image's own.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidewater.elastic.errors import ConfigError, TrainerError
from tidewater.elastic.launch.lifeline import bound_to
from tidewater.elastic.observe.log import Log
from tidewater.elastic.packages.needs import unmet
from tidewater.elastic.packages.reasons import reason
from tidewater.elastic.storage.filled import CONTENT, Filled

KIND = "packages"
LOCK = "lock/requirements.txt"
WHEELS = "lock/wheels/"
OPTIONS = (
    *("--disable-pip-version-check", "--no-cache-dir", "--no-input", "--root-user-action=ignore"),
    *("--no-deps", "--require-hashes", "--only-binary=:all:", "--progress-bar=raw"),
)
_SAY_SECONDS = 5.0
_BEGUN = ("Collecting ", "Processing ")
_BYTES = re.compile(r"Progress (\d+) of (\d+)")


def run(arguments: Sequence[str], log: Log) -> None:
    """Install the packages of a bundle.

    Raises:
        ConfigError: they can't be installed here, and a further try won't change that.
        TrainerError: an index was not reached.
    """
    parser = argparse.ArgumentParser(prog="trainer packages", description=__doc__)
    parser.add_argument("--bundle", type=Path, required=True, help=f"zip that has {LOCK}")
    parser.add_argument("--out", type=Path, required=True, help="folder in which to make that of this Python")
    parser.add_argument("--link", type=Path, help="symbolic link to that folder, which is made last")
    given = parser.parse_args(arguments)
    install(given.bundle, given.out / python(), log)
    if given.link:
        given.link.unlink(missing_ok=True)  # a container that starts again
        given.link.symlink_to(given.out / python())


def python() -> str:
    """Return what of the interpreter compiled packages are for, for example cpython-312-x86_64-linux-gnu."""
    return str(sysconfig.get_config_var("SOABI"))


def install(bundle: Path, out: Path, log: Log) -> None:
    """Install the packages of a bundle into `out`, unless they are there. `run` says what is raised."""
    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(bundle) as archive:
        archive.extractall(name, [member for member in archive.namelist() if member.startswith("lock/")])
        lock, wheels = Path(name, LOCK), Path(name, WHEELS)
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()

        def write(draft: Path) -> None:
            _pip(lock, wheels, draft, log)
            _check(draft / CONTENT, bundle)

        Filled(out, digest, log, kind=KIND).fill(write)
        # An image with another torch may have come since they were installed.
        _check(out, bundle)


def _check(folder: Path, bundle: Path) -> None:
    """Raise ConfigError if the packages don't go with the image's."""
    image = [place for place in sys.path if Path(place).absolute() != bundle.absolute()]
    if problems := unmet(folder, image):
        raise ConfigError("; ".join(problems))


def _pip(lock: Path, wheels: Path, draft: Path, log: Log) -> None:
    """Run pip. Raise what `run` says.

    It unpacks on the volume: a system node's disk may have less room than the packages need.
    """
    if importlib.util.find_spec("pip") is None:
        raise ConfigError(f"{sys.executable} has no pip, which installs packages: install pip, or use another image")
    target, temporary, record = draft / CONTENT, draft / "temporary", lock.with_name("pip.log")
    temporary.mkdir()
    links = [f"--find-links={wheels}"] if wheels.is_dir() else []
    command = [sys.executable, "-m", "pip", "install", *OPTIONS, *links, f"--log={record}", f"--target={target}"]
    output = _shown([*command, f"--requirement={lock}"], temporary, _count(lock), log)
    target.mkdir(exist_ok=True)  # every line may be for another Python
    if output is not None:
        found = reason(output, record.read_text() if record.exists() else "")
        raise (TrainerError if found.is_passing else ConfigError)(found.text)


def _count(lock: Path) -> int:
    return sum(not line.startswith("--") for line in lock.read_text().splitlines())


def _shown(command: list[str], temporary: Path, total: int, log: Log) -> str | None:
    """Run a command, and log from time to time how many packages it has begun. Return its output if it fails."""
    root = str(Path(__file__).parents[3])
    inherited = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([root, *([inherited] if inherited else [])])
    lines: list[str] = []
    with _started(command, {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(temporary)}) as process:
        assert process.stdout is not None
        begun, said = 0, time.monotonic()
        for line in process.stdout:
            size = _BYTES.match(line)
            lines += [] if size else [line]
            begun += line.startswith(_BEGUN)
            if time.monotonic() - said >= _SAY_SECONDS or line.startswith("Installing "):
                said = time.monotonic()
                doing = "install" if line.startswith("Installing ") else "download"
                mib, of_mib = (int(number) // 2**20 for number in size.groups()) if size else (None, None)
                event = f"{KIND}_progress"
                log.event(event, doing=doing, packages=begun, of_packages=total, mib=mib, of_mib=of_mib)
        status = process.wait()
    return None if status == 0 else "".join(lines)


@contextlib.contextmanager
def _started(command: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command that ends with the block."""
    with subprocess.Popen(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=bound_to(os.getpid()),
    ) as process:
        try:
            yield process
        finally:
            process.kill()
