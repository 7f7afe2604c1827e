"""Errors of a script's dataset or collate function, with the samples that they are about.

try:
    item = dataset[17]
except Exception as error:
    raise_named(error, (17,))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tidewater.elastic.errors import ConfigError, GroupBroken
from tidewater.elastic.machine_errors import chain, is_of_the_machine
from tidewater.elastic.training import Stop


def raise_named(error: Exception, samples: Sequence[int], data: str = "dataset") -> NoReturn:
    """Raise the error with the samples: in the sentence of a ConfigError, below the traceback of any other."""
    where = f"sample{'s' if len(samples) > 1 else ''} {', '.join(map(str, samples))} of the {data}"
    if isinstance(error, ConfigError):
        raise ConfigError(f"{where}: {error}") from error
    error.add_note(f"while preparing {where}")
    raise error


def is_of_the_sample(error: Exception) -> bool:
    """Return whether the sample may be at fault: not this machine, a change of the membership or the script's Stop."""
    of_the_job = any(isinstance(each, GroupBroken | Stop) for each in chain(error))
    return not (of_the_job or is_of_the_machine(error))
