"""The errors of commands. Their text is what the user reads; there is no stack trace.

ErrorWithRemedy           of `tidewater.kube.errors`; exit code 1
├── ClusterError          the cluster does not do what was asked, see there
└── CliError              exit code 1
    ├── UsageError        a wrong flag, file or value; exit code 2
    ├── TimeoutReached    `wait` or `delete` waited in vain; exit code 3
    └── JobFailed         the job that was waited for has failed; exit code 4
"""

from __future__ import annotations

from tidewater.kube.errors import ErrorWithRemedy

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_TIMEOUT = 3
EXIT_JOB_FAILED = 4
EXIT_INTERRUPTED = 130


class CliError(ErrorWithRemedy):
    """An error of a command, in addition to those of the cluster."""

    exit_code = EXIT_ERROR


def exit_code(error: ErrorWithRemedy) -> int:
    """Return the exit code of a command that ends with this error."""
    return error.exit_code if isinstance(error, CliError) else EXIT_ERROR


class UsageError(CliError):
    """A flag, a file or a value is wrong."""

    exit_code = EXIT_USAGE


class TimeoutReached(CliError):
    """What was waited for did not happen in time."""

    exit_code = EXIT_TIMEOUT


class JobFailed(CliError):
    """The job that was waited for has failed."""

    exit_code = EXIT_JOB_FAILED
