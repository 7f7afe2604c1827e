"""Errors of a script's dataset or collate function, with the samples that they are about.

with Naming((17,)):
    item = dataset[17]
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from tidewater.elastic.errors import ConfigError, GroupBroken
from tidewater.elastic.machine_errors import chain, is_of_the_machine
from tidewater.elastic.training import Stop


class Naming:
    """Let an error name the samples: in the sentence of a ConfigError, below the traceback of any other.

    It is entered for each sample, and a context made of a generator takes as long as reading a small one.
    """

    def __init__(self, samples: Sequence[int], data: str = "dataset") -> None:
        self._samples, self._data = samples, data

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not isinstance(error, Exception):
            return
        plural = "s" if len(self._samples) > 1 else ""
        where = f"sample{plural} {', '.join(map(str, self._samples))} of the {self._data}"
        if isinstance(error, ConfigError):
            raise ConfigError(f"{where}: {error}") from error
        error.add_note(f"while preparing {where}")


def is_of_the_sample(error: Exception) -> bool:
    """Return whether the sample may be at fault: not this machine, a change of the membership or the script's Stop."""
    of_the_job = any(isinstance(each, GroupBroken | Stop) for each in chain(error))
    return not (of_the_job or is_of_the_machine(error))
