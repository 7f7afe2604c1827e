"""How many samples fit in the memory of a worker that starts again, because a process of it had too little memory.

    with noting(config.limit, log): ...     # in a process: ShortOfMemory is noted in the launcher's file
    known(config.limit)                     # in all processes of the next start, and in the launcher; 0: any number

The processes that divide a model make their passes together, so one that has too little memory for its part ends, and
takes the others with it. Without this they would start again with the same number.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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
        if limit and error.samples < (known(limit) or error.samples + 1):
            draft = limit.with_name(f"{limit.name}-{os.getpid()}")
            draft.write_text(str(error.samples))
            draft.rename(limit)
        raise


def known(limit: Path | None) -> int:
    """Return the number of samples that is noted; 0 if there is none."""
    try:
        return int(limit.read_text()) if limit else 0
    except FileNotFoundError:
        return 0
