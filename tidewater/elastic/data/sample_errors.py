"""Errors of a script's dataset or collate function, with the samples that they are about.

with naming((17,)):
    item = dataset[17]
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence

from tidewater.elastic.errors import ConfigError, GroupBroken

_OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)


@contextlib.contextmanager
def naming(samples: Sequence[int], data: str = "dataset") -> Iterator[None]:
    """Let an error name the samples: in the sentence of a ConfigError, below the traceback of any other."""
    where = f"sample{'s' if len(samples) > 1 else ''} {', '.join(map(str, samples))} of the {data}"
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except Exception as error:
        error.add_note(f"while preparing {where}")
        raise


def is_of_the_sample(error: Exception) -> bool:
    """Return whether the sample may be at fault, and neither this machine nor a change of the membership."""
    of_the_machine = isinstance(error, OSError) and error.errno in _OF_THE_MACHINE
    return not (of_the_machine or isinstance(error, MemoryError | GroupBroken))
