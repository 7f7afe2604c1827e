"""Which device the checks can use: python -m benchmarks.gpu.device cuda prints what it is, as JSON.

In a process of its own, so that the driver needs no torch and leaves the device to the checks.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

MISSING = 3
"""Exit code: there is no such device. What was printed says why."""
WRONG_PYTHON = 4
"""Exit code: there is a GPU, but this Python can't use it. What was printed says why."""


def main(kind: str) -> int:
    """Print the versions and what the device is. Return an exit code."""
    there = any(Path("/dev").glob("nvidia[0-9]*"))
    wrong = WRONG_PYTHON if kind == "cuda" and there else MISSING
    if importlib.util.find_spec("torch") is None:
        print(f"torch is not installed for {sys.executable}")
        return wrong
    import torch

    versions = {"torch": str(torch.__version__)}
    if kind == "cpu":
        print(json.dumps({"device": {"device": "cpu"}, "versions": versions}))
        return 0
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no CUDA device")
        return wrong
    nccl: Any = torch.cuda.nccl  # without annotations
    properties = torch.cuda.get_device_properties(0)
    device = {"device": f"one {properties.name}, {properties.total_memory / (1 << 30):.0f} GiB", "driver": _driver()}
    versions |= {"CUDA": str(torch.version.cuda), "NCCL": ".".join(map(str, nccl.version()))}
    print(json.dumps({"device": device, "versions": versions}))
    return 0


def _driver() -> str:
    """Return the version of NVIDIA's kernel driver."""
    file = Path("/proc/driver/nvidia/version")
    if not file.exists():
        return "driver unknown"
    words = file.read_text().splitlines()[0].split()
    return "driver " + next((word for word in words if word[:1].isdigit() and word.count(".") >= 1), "unknown")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
