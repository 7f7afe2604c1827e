"""Debian's kernel for the virtual machine, and the RAM disk that it starts from.

    steps.install([kernel.step()], Console())
    kernel.folder() / kernel.IMAGE

Both come from this machine's own package sources. Nothing is installed: the packages are downloaded and unpacked.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from scripts.toolchain import debian, paths
from scripts.toolchain.commands import Console, run
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.steps import Step, draft_of

IMAGE, RAM_DISK = "vmlinuz", "initrd.gz"
INIT = Path(__file__).with_name("init.sh")
PACKAGE = "linux-image-amd64"
"""Depends on the newest kernel of the release."""
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "veth", "crc32c_generic", "nf_tables")
"""For this machine's files, and what localcloud's check tries; nf_tables needs a crc32c. There is no modprobe, so the
kernel loads no other module."""
_PACK = '(cd "$1" && find . | bin/busybox cpio -o -H newc) | gzip >"$2"'


def step() -> Step:
    """Downloads the kernel and makes the RAM disk."""
    return Step("kernel of the virtual machine", done=folder().is_dir, run=_build, disk_gib=0.7)


def folder() -> Path:
    """Where the result lies: another init or another list of modules makes another folder."""
    recipe = f"{debian.here().codename} {MODULES} {_PACK}".encode()
    return paths.cache() / "virtual-machine" / paths.key_of(recipe, INIT.read_bytes())


def newest(depends: str) -> str:
    """Return the package with the kernel from what `apt-cache depends` prints about `PACKAGE`.

    Raises:
        StepFailed: This machine's sources don't have it, as those of Ubuntu.
    """
    found = re.search(r"^\s*Depends: (linux-image-\d\S+)$", depends, re.MULTILINE)
    if found is None:
        raise StepFailed(
            f"apt knows no package {PACKAGE}: the virtual machine needs Debian's kernel, so run it on Debian, "
            "after `apt-get update`"
        )
    return found[1]


def in_order(dependencies: str, names: Iterable[str]) -> list[str]:
    """Return the files of modules and of those that they need, each after what it needs.

    Args:
        dependencies: The contents of modules.dep; a line has a file, and what it needs, the innermost last.
        names: The modules' names.

    Raises:
        StepFailed: The kernel lacks a module.
    """
    lines = (line.partition(":") for line in dependencies.splitlines())
    needs = {_name(file): (file, needed.split()) for file, _, needed in lines}
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in needs:
            raise StepFailed(f"the kernel has no module {name}: its packages differ from what this was written for")
        file, needed = needs[name]
        for other in reversed(needed):
            if other not in ordered:
                add(_name(other))
        ordered.setdefault(file)

    for name in names:
        add(name)
    return list(ordered)


def _name(file: str) -> str:
    return Path(file).name.partition(".")[0].replace("-", "_")


def _build(console: Console, log: Path) -> None:
    shown = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True, check=False)
    package = newest(shown.stdout)
    with draft_of(folder()) as draft:
        work = draft / "unpacked"
        work.mkdir(parents=True)
        run(["apt-get", "download", "-q", package, "busybox-static"], log=log, console=console, cwd=work)
        for archive in work.glob("*.deb"):
            run(["dpkg-deb", "--extract", archive, work], log=log, console=console)
        release = package.removeprefix("linux-image-")
        shutil.copy(work / f"boot/vmlinuz-{release}", draft / IMAGE)
        _fill(work, release, draft / "disk", console, log)
        run(["sh", "-c", _PACK, "sh", draft / "disk", draft / RAM_DISK], log=log, console=console)
        for each in (work, draft / "disk"):
            shutil.rmtree(each)


def _fill(unpacked: Path, release: str, disk: Path, console: Console, log: Path) -> None:
    """Make the RAM disk's files: busybox, the modules and their order, init."""
    busybox = next(each for each in unpacked.glob("**/bin/busybox"))  # /usr/bin since Debian 13
    run([busybox, "depmod", "-b", unpacked, release], log=log, console=console)
    modules = next(unpacked.glob(f"**/lib/modules/{release}"))
    ordered = in_order((modules / "modules.dep").read_text(), MODULES)
    (disk / "bin").mkdir(parents=True)
    (disk / "modules").mkdir()
    shutil.copy(busybox, disk / "bin/busybox")
    for number, file in enumerate(ordered, 100):  # init loads them in the order of their names
        shutil.copy(modules / file, disk / f"modules/{number}-{Path(file).name}")
    shutil.copy(INIT, disk / "init")
    (disk / "init").chmod(0o755)
