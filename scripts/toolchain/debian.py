"""This machine's distribution, and the packages of it that the one-machine cloud and the set-up itself need."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.toolchain.commands import Console, run
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.steps import Step
from scripts.toolchain.table import SYSTEMS, System

STEP = "Debian packages"
ARCHITECTURE = "x86_64"
FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Of daemons and of programs that dpkg starts. A person's PATH lacks them, and after `su` root has that PATH."""


@dataclass(frozen=True)
class Package:
    """A Debian package and how to see that what it brings is there: a command or an absolute path."""

    name: str
    sign: str
    why: str

    def present(self) -> bool:
        """Whether it (or another that brings the same) is installed."""
        if self.sign.startswith("/"):
            return Path(self.sign).exists()
        return shutil.which(self.sign, path=path_of_root(os.environ.get("PATH", os.defpath))) is not None


PACKAGES = (
    Package("containerd", "containerd", "runs the nodes' containers"),
    Package("runc", "runc", "starts them"),
    Package("containernetworking-plugins", "/usr/lib/cni/host-local", "gives pods their addresses"),
    Package("nftables", "nft", "kube-proxy's services"),
    Package("conntrack", "conntrack", "kube-proxy's connections"),
    Package("iproute2", "ip", "the nodes' networks"),
    Package("util-linux", "nsenter", "the nodes' namespaces"),
    Package("mount", "mount", "the nodes' file systems"),
    Package("mmdebstrap", "mmdebstrap", "makes the nodes' image"),
    Package("gcc", "gcc", "compiles its pause process"),
    Package("libc6-dev", "/usr/include/stdio.h", "the same"),
    Package("ca-certificates", "/etc/ssl/certs/ca-certificates.crt", "HTTPS to the registries"),
    Package("procps", "ps", "lists processes"),
    Package("git", "git", "copies the checkout in the tests"),
)


def here() -> System:
    """This machine's distribution.

    Raises:
        StepFailed: The set-up doesn't know it.
    """
    try:
        release: Mapping[str, str] = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return system_of(release, platform.machine())


def system_of(release: Mapping[str, str], machine: str) -> System:
    """Return the distribution with these contents of os-release, on a processor that `uname -m` calls `machine`.

    Raises:
        StepFailed: There are no packages for it, or no nodes' image.
    """
    names = release.get("ID"), release.get("VERSION_CODENAME")
    for system in SYSTEMS:
        if (system.distribution, system.codename) == names and machine == ARCHITECTURE:
            return system
    known = " or ".join(system.name for system in SYSTEMS)
    raise StepFailed(
        f"this is {release.get('PRETTY_NAME') or 'an unknown system'} ({machine}), and the set-up needs {known} on "
        f"{ARCHITECTURE}: run it there, for example in a virtual machine"
    )


def path_of_root(path: str) -> str:
    """Return PATH with the folders of `FOLDERS` in addition."""
    return os.pathsep.join(dict.fromkeys([*path.split(os.pathsep), *FOLDERS]))


def missing() -> list[str]:
    """The packages with contents that aren't on this machine."""
    name, key = here().keyring
    keyring = Package(name, key, "checks what goes into it")
    absent = [package.name for package in (*PACKAGES, keyring) if not package.present()]
    # Debian splits Python's venv module off; pip in a virtual environment comes from ensurepip.
    return absent if importlib.util.find_spec("ensurepip") else [*absent, "python3-venv"]


def step() -> Step:
    """Installs what is missing with apt-get."""
    return Step(STEP, done=lambda: not missing(), run=_install, disk_gib=0.5)


def _install(console: Console, log: Path) -> None:
    wanted = missing()
    console.say(f"installing {_reasons(wanted)}")
    # One command: the first part only warns of a source that it can't read, and the second one fails for lack of it.
    options = "-q -o DPkg::Lock::Timeout=300"
    script = f'apt-get update {options} && apt-get install -y --no-install-recommends {options} "$@"'
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["sh", "-c", script, "sh", *wanted], log=log, console=console, env=quiet)
    if still := missing():
        raise StepFailed(f"apt-get installed {', '.join(still)}, but what they bring isn't there; see {log}")


def _reasons(names: list[str]) -> str:
    why = {package.name: package.why for package in PACKAGES}
    return ", ".join(f"{name} ({why[name]})" if name in why else name for name in names)
