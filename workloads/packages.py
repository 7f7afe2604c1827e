"""The Python packages that travel in the code bundle, so that no worker installs anything when it starts.

    packages.contents("prometheus_client")     # {"prometheus_client/core.py": b"...", ...}

An image with PyTorch and torchvision has the compiled packages that the trainer imports: torchvision needs numpy and
pillow. The others are pure Python, so they run in every image. They come from the environment that this program runs
in, which `pip install --require-hashes -r requirements/program.txt` made. Each must have the version that
trainer/requirements.txt locks, which the tests run with, and each file the hash in the record of its wheel. pip, which
no worker gets, has that of requirements/program.txt.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
from pathlib import Path

import pulumi

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "trainer" / "requirements.txt"
METRICS, S3, PIP = "prometheus_client", "boto3", "pip"
GROUPS = {
    METRICS: ("prometheus-client",),
    PIP: ("pip", "packaging"),
    S3: ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3"),
}
"""The module that the trainer imports, and the packages that it consists of and needs."""

_OF_THE_INSTALLER = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
"""Files that pip or uv writes in addition to those of the wheel. They differ between machines."""
_REMEDY = "run `pip install --require-hashes -r requirements/program.txt` in the environment that runs Pulumi"


def contents(module: str) -> dict[str, bytes]:
    """Return the files of a module of `GROUPS` and of what it needs, by their paths in `site-packages`.

    Raises:
        pulumi.RunError: a package is absent, changed, or of another version than the lock's.
    """
    versions = locked((ROOT / "requirements" / "program.txt").read_text()) | locked(LOCK.read_text())
    found: dict[str, bytes] = {}
    for name in GROUPS[module]:
        found |= _files(_installed(name, versions[name]))
    return found


def locked(lock: str) -> dict[str, str]:
    """Return the versions in a hash-locked requirements file, by the packages' names."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, flags=re.MULTILINE))


def _installed(name: str, version: str) -> importlib.metadata.Distribution:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise pulumi.RunError(f"the package {name} is not installed, and the workers need it: {_REMEDY}") from None
    if found.version != version:
        raise pulumi.RunError(f"{name} {found.version} is installed, and the workers' is {version}: {_REMEDY}")
    if "Root-Is-Purelib: true" not in (found.read_text("WHEEL") or ""):
        raise pulumi.RunError(
            f"{name} {version} has compiled files, which may not run in the workers' image: {_REMEDY}"
        )
    return found


def _files(package: importlib.metadata.Distribution) -> dict[str, bytes]:
    found = {}
    for path in package.files or ():
        # A path with `..` is a command next to the packages.
        if path.hash is None or ".." in path.parts or path.suffix == ".pyc" or path.name in _OF_THE_INSTALLER:
            continue
        content = path.read_binary()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if (path.hash.mode, path.hash.value) != ("sha256", digest):
            raise pulumi.RunError(
                f"{path.locate()} is not the file that was installed: {_REMEDY} with --force-reinstall"
            )
        found[path.as_posix()] = content
    return found
