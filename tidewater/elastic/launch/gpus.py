"""The GPUs of this machine, or of this container, found without torch, which would take seconds and GPU memory.

found = visible_gpus(os.environ)
found.only(1)       # the environment of process 1, which shows it one GPU
found.of(1)         # Gpu("1", uuid="GPU-5d5b…", bus_id="00000000:10:1C.0")
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CHOSEN, _ORDER, _BY_BUS = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
_QUERY = ("nvidia-smi", "--query-gpu=uuid,pci.bus_id", "--format=csv,noheader")
_ANSWER_SECONDS = 30.0
_MAJOR = 195
"""Of NVIDIA's devices: https://www.kernel.org/doc/Documentation/admin-guide/devices.txt"""


@dataclass(frozen=True)
class Gpu:
    """One GPU. What is not known of it is None."""

    name: str
    """As CUDA_VISIBLE_DEVICES names it: an index or a UUID."""
    uuid: str | None = None
    bus_id: str | None = None


@dataclass(frozen=True)
class Visible:
    """The GPUs, and the source of this information."""

    gpus: tuple[Gpu, ...]
    source: str
    by_bus: bool = False
    """Whether CUDA must count them in the order of their buses, as nvidia-smi does. By default CUDA begins with the
    fastest one."""

    def of(self, rank: int) -> Gpu | None:
        """Return the GPU of process ``rank``; None if there is no GPU."""
        return self.gpus[rank % len(self.gpus)] if self.gpus else None

    def only(self, rank: int) -> dict[str, str]:
        """Return the variables that show process ``rank`` only its GPU, as `cuda:0`; none if there is no GPU.

        NCCL can still reach the GPUs of the other processes.
        """
        gpu = self.of(rank)
        order = {_ORDER: _BY_BUS} if self.by_bus else {}
        return {_CHOSEN: gpu.name, **order} if gpu else {}


def visible_gpus(environ: Mapping[str, str], nodes: Path = Path("/dev")) -> Visible:
    """Return the GPUs, found by CUDA_VISIBLE_DEVICES, nvidia-smi or the device nodes, in this order.

    NVIDIA_VISIBLE_DEVICES is no help: images set it to `all` even if there is no GPU.
    """
    names = _chosen(environ)
    listed = None if names == [] else _listed(environ)
    if names is not None:
        known = [_known(name, listed or [], environ) for name in names]
        return Visible(tuple(known), f"{_CHOSEN}={environ[_CHOSEN]}")
    if listed is not None:
        return Visible(tuple(listed), "nvidia-smi", by_bus=True)
    counted = [Gpu(str(index)) for index in range(_counted(nodes))]
    return Visible(tuple(counted), f"{nodes}/nvidia*", by_bus=True)


def has_gpu(environ: Mapping[str, str], nodes: Path = Path("/dev")) -> bool:
    """Return whether this process is to have a GPU, also if the driver can't use it: it has a device node.

    A node that only looks like one, as on the simulated hosts of the one-machine cloud, has another number.
    """
    return _chosen(environ) != [] and any(map(_is_nvidias, nodes.glob("nvidia[0-9]*")))


def _is_nvidias(node: Path) -> bool:
    found = node.stat()
    return stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == _MAJOR


def _chosen(environ: Mapping[str, str]) -> list[str] | None:
    """Return the names in CUDA_VISIBLE_DEVICES up to the first invalid one, as CUDA reads them; None without it."""
    if _CHOSEN not in environ:
        return None
    names = [name.strip() for name in environ[_CHOSEN].split(",")]
    return names[: next((at for at, name in enumerate(names) if name in ("", "-1")), len(names))]


def _counted(nodes: Path) -> int:
    return sum(node.name.removeprefix("nvidia").isdecimal() for node in nodes.glob("nvidia[0-9]*"))


def _known(name: str, listed: Sequence[Gpu], environ: Mapping[str, str]) -> Gpu:
    """Return what nvidia-smi says of the GPU that CUDA calls ``name``. CUDA accepts the beginning of a UUID, too."""
    by_bus = environ.get(_ORDER) == _BY_BUS
    found = [
        gpu
        for gpu in listed
        if (gpu.uuid or "").startswith(name) or (name == gpu.name and (by_bus or len(listed) == 1))
    ]
    return Gpu(name, found[0].uuid, found[0].bus_id) if len(found) == 1 else Gpu(name)


def _listed(environ: Mapping[str, str]) -> list[Gpu] | None:
    """Return the GPUs in the order of their buses; None if nvidia-smi can't say."""
    try:
        done = subprocess.run(
            _QUERY, env=dict(environ), capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines()]
    if done.returncode or not all(len(row) == len(("uuid", "bus id")) for row in rows):
        return None
    return [Gpu(str(index), uuid, bus_id) for index, (uuid, bus_id) in enumerate(rows)]
