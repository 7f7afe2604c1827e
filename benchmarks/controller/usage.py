"""How much memory a process and its descendants use, as the kernel counts it.

memory(process.tree()).rss_mib
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FIELD = re.compile(r"^(Rss|Pss): +(\d+) kB$", re.MULTILINE)
_KIB_PER_MIB = 1024


@dataclass(frozen=True)
class Memory:
    """Resident memory. RSS counts a page of several processes in each of them; PSS divides it among them."""

    rss_mib: float
    pss_mib: float


def parse(rollup: str) -> Memory:
    """Return what a text of /proc/PID/smaps_rollup says.

    Raises:
        ValueError: It lacks one of the two fields.
    """
    found = {name: int(size) / _KIB_PER_MIB for name, size in _FIELD.findall(rollup)}
    if missing := {"Rss", "Pss"} - found.keys():
        raise ValueError(f"smaps_rollup without {', '.join(sorted(missing))}: {rollup[:200]!r}")
    return Memory(found["Rss"], found["Pss"])


def memory(pids: Sequence[int]) -> Memory:
    """Return the memory of all these processes together, without ended ones."""
    each = []
    for pid in pids:
        with contextlib.suppress(OSError):
            each.append(parse(Path(f"/proc/{pid}/smaps_rollup").read_text()))
    return Memory(sum(one.rss_mib for one in each), sum(one.pss_mib for one in each))
