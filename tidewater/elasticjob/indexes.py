"""Sets of pod indexes as text, in the notation of a Kubernetes Job's `status.completedIndexes`.

    indexes.text({0, 1, 2, 5})      # "0-2,5"
    indexes.numbers("0-2,5")        # [0, 1, 2, 5]
    indexes.listed(pod_names)       # "job-worker-[0-2,5]" if there are many

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/#JobStatus
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

MOST_NAMES = 10
"""Pods that are listed by name; of more, the indexes are."""

PATTERN = "^([0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*)?$"


def text(numbers: Iterable[int]) -> str:
    """Return the text for some numbers: those that follow each other as a range."""
    parts = []
    for _, run in itertools.groupby(enumerate(sorted(set(numbers))), lambda each: each[1] - each[0]):
        found = [number for _, number in run]
        parts.append(f"{found[0]}-{found[-1]}" if len(found) > 2 else ",".join(map(str, found)))
    return ",".join(parts)


def numbers(text: str) -> list[int]:
    """Return the numbers that a text stands for, in its order."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def listed(names: Iterable[str]) -> str:
    """Return the names of pods for people: each of a few, and otherwise what they begin with and their indexes."""
    found = sorted(names)
    if len(found) <= MOST_NAMES:
        return ", ".join(found)
    groups: dict[str, list[int]] = {}
    others = []
    for name in found:
        start, _, index = name.rpartition("-")
        if start and index.isdecimal():
            groups.setdefault(start, []).append(int(index))
        else:
            others.append(name)  # the only pod of its type
    return ", ".join([*others, *(f"{start}-[{text(each)}]" for start, each in groups.items())])
