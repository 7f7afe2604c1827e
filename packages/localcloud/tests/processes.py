"""What the kernel says about a process, also one that the test did not start."""

from __future__ import annotations

from pathlib import Path


def state(pid: int) -> str:
    """The letter of proc(5), the third field of /proc/PID/stat; empty once the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether it runs or could; one that merely waits to be reaped doesn't."""
    return state(pid) not in ("", "Z")
