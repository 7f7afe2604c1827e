"""Prints the kept logs of a job, in the order of the lines' times.

    python3 read.py --directory /data/logs --job digits [--uid UID] [--pod digits-worker-0] [--tail 10] [--since TIME]

The first line is JSON: `{"files": 2, "lines": 120, "left_out": 0}`. Each of the others is a pod's name, a space, and a
line of its log as the kubelet writes it, behind its time. Without a uid it is the job of the name that was last written
to. It prints the last MOST_BYTES: from 10 MiB on the kubelet rotates the log of this pod, in which the lines are read.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

MOST_BYTES = 4 << 20
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ")

Line = tuple[str, str]
"""A time, and the line with it behind its pod's name."""


def folder_of(place: Path, uid: str) -> Path | None:
    """Return the folder of a job; without a uid that of the name's last one; None if nothing is kept."""
    found = [each for each in place.glob("*/") if any(each.glob("*.log*")) and uid in ("", each.name)]
    return max(found, key=lambda each: max(file.stat().st_mtime for file in each.glob("*.log*")), default=None)


def lines_of(file: Path, since: str) -> Iterator[Line]:
    """Yield a pod's lines from a time on. A line without a time has that of the line before it."""
    pod, last = file.name.rpartition("_")[0], ""
    for path in (file.with_name(f"{file.name}.1"), file):
        if not path.exists():
            continue
        with path.open(encoding="utf-8", errors="replace", newline="\n") as opened:
            for line in opened:
                last = found[0] if (found := STAMP.match(line)) else last
                if last >= since:
                    yield last, f"{pod} {line.removesuffix(chr(10))}"


def merged(files: Iterable[Path], since: str, tail: int | None) -> tuple[deque[str], int]:
    """Return the last lines, and how many others there are because of MOST_BYTES."""
    logs: list[Iterable[Line]] = [lines_of(each, since) for each in files]
    if tail is not None:
        logs = [deque(each, tail) for each in logs]
    found: deque[str] = deque()
    size = left_out = 0
    for _, line in heapq.merge(*logs, key=lambda each: each[0]):
        found.append(line)
        size += len(line.encode()) + 1
        while size > MOST_BYTES and len(found) > 1:
            size -= len(found.popleft().encode()) + 1
            left_out += 1
    return found, left_out


def main(arguments: Sequence[str]) -> None:
    """Print what is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--uid", default="")
    parser.add_argument("--pod", action="append", default=[])
    parser.add_argument("--tail", type=int)
    parser.add_argument("--since", default="")
    given = parser.parse_args(arguments)
    folder = folder_of(given.directory / given.job, given.uid)
    files = {each.with_name(each.name.removesuffix(".1")) for each in folder.glob("*.log*")} if folder else set()
    chosen = sorted(each for each in files if not given.pod or each.name.rpartition("_")[0] in given.pod)
    lines, left_out = merged(chosen, given.since, given.tail)
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr] # it is a file
    print(json.dumps({"files": len(chosen), "lines": len(lines), "left_out": left_out}))
    for line in lines:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
