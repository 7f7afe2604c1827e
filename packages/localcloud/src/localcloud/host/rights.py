"""Root's capabilities, and the kernel's features: what a container or a restricted shell lacks.

check_capabilities(Path("/proc/self/status").read_text())
check_kernel(Path("/proc/filesystems").read_text(), refusal)
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

from localcloud.errors import KernelFeature, MissingRight

ELSEWHERE = "run it on the machine itself or in a virtual machine, not in a container"

# Numbers and meanings: https://man7.org/linux/man-pages/man7/capabilities.7.html, linux/capability.h
CAPABILITIES: dict[str, tuple[int, str]] = {
    "CAP_SYS_ADMIN": (21, "namespaces, mounts and cgroups"),
    "CAP_NET_ADMIN": (12, "network interfaces, routes and firewall rules"),
    "CAP_MKNOD": (27, "the devices of nodes"),
    "CAP_SYS_CHROOT": (18, "mount namespaces"),
    "CAP_DAC_OVERRIDE": (1, "the files of other users"),
    "CAP_CHOWN": (0, "the files of images"),
    "CAP_KILL": (5, "ending the processes of pods"),
    "CAP_SETGID": (6, "pods that aren't root"),
    "CAP_SETUID": (7, "pods that aren't root"),
    "CAP_NET_RAW": (13, "containers"),
}

# A trial of each feature in namespaces that end with it: the program that must be installed, the command, the remedy.
NEW_NAMESPACES = ("unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork")
TRIALS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("unshare", (*NEW_NAMESPACES, "true"), f"namespaces can't be made here: {ELSEWHERE}"),
    (
        "mount",
        ("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/run"),
        f"file systems can't be mounted here: {ELSEWHERE}",
    ),
    (
        "ip",
        ("unshare", "--net", "ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"),
        "the kernel has no veth interfaces: load them (`modprobe veth`) or use another kernel",
    ),
    (
        "nft",
        ("unshare", "--net", "nft", "add", "table", "inet", "probe"),
        "the kernel has no nftables: load it (`modprobe nf_tables`) or use another kernel",
    ),
)

Refusal = Callable[[Sequence[str]], str | None]


def check_capabilities(status: str) -> None:
    """Raise for the capabilities that root lacks here.

    Args:
        status: The contents of /proc/self/status.
    """
    effective = int(status.partition("\nCapEff:")[2].split()[0], 16)
    lacking = {name: why for name, (number, why) in CAPABILITIES.items() if not effective >> number & 1}
    if lacking:
        named = ", ".join(f"{name} (for {why})" for name, why in lacking.items())
        raise MissingRight(f"root has no {named} here: {ELSEWHERE}")


def check_kernel(filesystems: str, refusal: Refusal) -> None:
    """Raise for the first feature that the kernel lacks or refuses; what needs a missing program isn't tried.

    Args:
        filesystems: The contents of /proc/filesystems.
        refusal: Runs a command; returns its error message, or None if it succeeds.
    """
    if "\toverlay\n" not in filesystems and refusal(["modprobe", "overlay"]) is not None:
        raise KernelFeature("the kernel has no overlay file system: load it (`modprobe overlay`) or use another kernel")
    for program, command, sentence in TRIALS:
        if shutil.which(program) and (reason := refusal(command)) is not None:
            raise KernelFeature(f"{sentence} (`{' '.join(command)}`: {reason})")


def refusal(command: Sequence[str]) -> str | None:
    """Run a command; return the first line of its error message, or None if it succeeds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
