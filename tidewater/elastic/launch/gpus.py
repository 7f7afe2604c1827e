"""Finds the GPUs that this process can see, without torch, which would take seconds and GPU memory.

gpus.visible(os.environ)      # Visible(names=("0", "1"), source="nvidia-smi -L")
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Visible:
    """The GPUs as CUDA_VISIBLE_DEVICES names them, and the source of this information."""

    names: tuple[str, ...]
    source: str

    def only(self, rank: int) -> dict[str, str]:
        """Return the variable that shows process `rank` only one of them, as `cuda:0`; none if there is no GPU.

        NCCL can still reach the GPUs of the other processes.
        """
        return {"CUDA_VISIBLE_DEVICES": self.names[rank % len(self.names)]} if self.names else {}


def visible(environ: Mapping[str, str], nodes: Path = Path("/dev")) -> Visible:
    """Return the GPUs according to CUDA_VISIBLE_DEVICES, nvidia-smi or the device nodes, in this order.

    NVIDIA_VISIBLE_DEVICES is no help: images set it to `all` even if there is no GPU.
    """
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
        end = next((at for at, name in enumerate(names) if name in ("", "-1")), len(names))  # as CUDA reads it
        return Visible(tuple(names[:end]), f"CUDA_VISIBLE_DEVICES={chosen}")
    listed = _nvidia_smi(environ)
    if listed is not None:
        return Visible(_numbered(sum(line.startswith("GPU ") for line in listed.splitlines())), "nvidia-smi -L")
    found = [node for node in nodes.glob("nvidia[0-9]*") if node.name.removeprefix("nvidia").isdecimal()]
    return Visible(_numbered(len(found)), f"{nodes}/nvidia*")


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def _nvidia_smi(environ: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
