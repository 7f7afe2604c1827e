"""Starts the virtual machine with this machine's files, prints what its command prints, returns its exit status.

qemu.run(["make", "machine"], kernel.folder())
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from scripts.toolchain import paths
from scripts.toolchain.errors import StepFailed
from scripts.virtual_machine import kernel

PROGRAM = "qemu-system-x86_64"
CORES, MEMORY = 2, "4G"
KEPT = ("HOME", "PATH", "TIDEWATER_CACHE")
"""What the command gets of the caller's environment."""
_STATUS = re.compile(r"virtual machine: exit status (\d+)\s*")


def check() -> None:
    """Raise if qemu is not installed.

    Raises:
        StepFailed: The message has the command that installs it.
    """
    if shutil.which(PROGRAM) is None:
        raise StepFailed(f"{PROGRAM} is not installed: run `apt-get install --no-install-recommends qemu-system-x86`")


def run(arguments: Sequence[str], folder: Path) -> int:
    """Run a command of this checkout in a virtual machine; return its exit status.

    Args:
        arguments: The command.
        folder: That of the kernel and its RAM disk.

    Raises:
        StepFailed: The virtual machine ended before the command.
    """
    with tempfile.TemporaryDirectory(prefix="tidewater-virtual-machine-") as name:
        path = Path(name, "command.sh")
        path.write_text(script(arguments, paths.CHECKOUT, os.environ))
        with subprocess.Popen(
            command(folder, path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
        ) as machine:
            assert machine.stdout is not None
            status = forward(machine.stdout, sys.stdout)
    if status is None:
        raise StepFailed("the virtual machine ended before its command: see the kernel's lines above")
    return status


def forward(lines: Iterable[str], target: TextIO) -> int | None:
    """Write the console's lines to `target`; return the exit status that init prints, or None if it printed none."""
    status = None
    for line in lines:
        if (found := _STATUS.fullmatch(line)) is not None:
            status = int(found[1])
        else:
            target.write(line)
            target.flush()
    return status


def script(arguments: Sequence[str], checkout: Path, environment: Mapping[str, str]) -> str:
    """Return what the virtual machine's shell executes."""
    kept = [f"export {name}={shlex.quote(environment[name])}" for name in KEPT if name in environment]
    return "\n".join([*kept, f"cd {shlex.quote(str(checkout))}", f"exec {shlex.join(arguments)}"]) + "\n"


def command(folder: Path, script: Path) -> list[str]:
    """Return qemu's command: an emulated processor, this machine's files read-only, no network, a serial console."""
    return [
        *(PROGRAM, "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"),
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CORES), "-m", MEMORY),
        *("-kernel", str(folder / kernel.IMAGE), "-initrd", str(folder / kernel.RAM_DISK)),
        *("-append", f"console=ttyS0 quiet panic=-1 script={script}"),
        *("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"),
        *("-device", "virtio-rng-pci"),
    ]
