"""Machines with GPUs, as nvidia-smi shows them."""

from __future__ import annotations

from pathlib import Path

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
