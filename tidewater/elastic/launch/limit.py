"""How many samples fit in the memory of a worker that starts again, because a process of it had too little memory.

    with noting(config.limit, log): ...     # in a process: ShortOfMemory is noted in the launcher's file
    known(config.limit)                     # in all processes of the next start, and in the launcher; 0: any number
    note(limit, least([2, 0, 1]))           # in the launchers of several machines

The processes that divide a model make their passes together, so one that has too little memory for its part ends, and
takes the others with it. Without this they would start again with the same number.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidewater.elastic.errors import ShortOfMemory
from tidewater.elastic.observe.log import Log


@contextlib.contextmanager
def noting(limit: Path | None, log: Log) -> Iterator[None]:
    """Give a context in which ShortOfMemory is noted. A smaller number that another process has noted stays."""
    try:
        yield
    except ShortOfMemory as error:
        log.event("out_of_memory", micro_batch=error.samples, reason=str(error))
        if limit:
            note(limit, error.samples)
        raise


def note(limit: Path, samples: int) -> None:
    """Note that so many samples fit. A smaller number that is noted stays."""
    if samples < (known(limit) or samples + 1):
        draft = limit.with_name(f"{limit.name}-{os.getpid()}")
        draft.write_text(str(samples))
        draft.rename(limit)


def least(limits: Iterable[int]) -> int:
    """Return the number that fits in the memory of all machines that know these numbers; 0: any number."""
    return min(filter(None, limits), default=0)


def known(limit: Path | None) -> int:
    """Return the number of samples that is noted; 0 if there is none."""
    try:
        return int(limit.read_text()) if limit else 0
    except FileNotFoundError:
        return 0
