"""The errors that a person may see. Each has two parts: what is wrong with which input, and what to do about it.

ElasticDLError            anything below
├── InputError            a flag, a file or a value is wrong; trying again gives the same error
│   ├── ZooError          the model zoo: a module, one of its functions, or what a function returned
│   └── DataError         the data: an address, a parameter of the reader, a file
│       ├── MissingData   there is no such file, folder, bucket or dataset
│       └── DamagedData   a file is cut off or altered; says at which byte, chunk and record
└── Unavailable           something outside does not answer now; trying again may help

The sub-packages derive theirs from these.
"""

from __future__ import annotations

from tidewater.contract import exit_codes


class ElasticDLError(Exception):
    """An error for the user: a sentence that names the input at fault, and the remedy."""

    exit_code = exit_codes.FAILED
    """Of a process that ends by it."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


def in_one_line(error: ElasticDLError | str) -> str:
    """Return an error as the last line of a log: what the condition of a job shows of a pod that has failed."""
    return str(error).replace("\n", ". ")


class InputError(ElasticDLError):
    """A flag, a file or a value is wrong."""

    exit_code = exit_codes.USAGE


class ZooError(InputError):
    """A module of the model zoo, one of its functions, or what a function returned is wrong."""


class DataError(InputError):
    """An address of data, a parameter of its reader, or a file is wrong."""


class MissingData(DataError):
    """There is no such file, folder, bucket or dataset."""


class DamagedData(DataError):
    """A file is cut off or altered."""


class Unavailable(ElasticDLError):
    """Something outside does not answer now."""
