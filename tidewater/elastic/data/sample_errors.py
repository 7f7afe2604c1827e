"""Errors of a script's dataset or collate function, with the samples that they are about.

with naming((17,)):
    item = dataset[17]
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tidewater.elastic.errors import ConfigError, GroupBroken
from tidewater.elastic.machine_errors import chain, is_of_the_machine
from tidewater.elastic.training import Stop


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
    """Return whether the sample may be at fault: not this machine, a change of the membership or the script's Stop."""
    of_the_job = any(isinstance(each, GroupBroken | Stop) for each in chain(error))
    return not (of_the_job or is_of_the_machine(error))
