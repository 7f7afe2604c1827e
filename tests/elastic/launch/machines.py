"""Machines with GPUs, as nvidia-smi shows them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

NVIDIAS, NULL = (195, 0), (1, 3)
"""Numbers of devices."""
LISTED = """GPU-1, 00000000:10:1C.0
GPU-2, 00000000:10:1D.0
"""


def machine(tmp_path: Path, answer: str | None = None, status: int = 0) -> dict[str, str]:
    """Return an environment with an nvidia-smi that prints ``answer``, or without nvidia-smi."""
    tools = tmp_path / "bin"
    tools.mkdir()
    if answer is not None:
        (tools / "nvidia-smi").write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{answer}END\nexit {status}\n")
        (tools / "nvidia-smi").chmod(0o755)
    return {"PATH": str(tools), "NVIDIA_VISIBLE_DEVICES": "all"}


def device_node(path: Path, device: tuple[int, int] = NVIDIAS) -> None:
    """Make the node of a device; nothing is behind it here."""
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*device))
