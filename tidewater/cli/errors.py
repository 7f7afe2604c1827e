"""Every error that a command may end with. Its text is what the user reads; there is no stack trace.

CliError                  anything below; exit code 1
├── UsageError            a wrong flag, file or value; exit code 2
├── TimeoutReached        `wait` or `delete` waited in vain; exit code 3
├── JobFailed             the job that was waited for has failed; exit code 4
└── ClusterError          the cluster does not do what was asked; exit code 1
    ├── NoKubeconfig      there is no usable kubeconfig
    ├── LoginFailed       the login plug-in failed, or the API server does not accept the credentials
    ├── Unreachable       no answer from the API server
    ├── MissingKind       the API server does not know the kind: its CRD is not installed
    └── Refused           the API server's own answer, with its status code and reason
        ├── NotFound      404
        ├── Forbidden     403
        ├── AlreadyThere  409, AlreadyExists
        ├── Conflict      409, any other reason
        ├── Invalid       422 or 400: validation, with the sentence of the API server
        └── Expired       410: a watch must begin again with a list
"""

from __future__ import annotations

from dataclasses import dataclass

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_TIMEOUT = 3
EXIT_JOB_FAILED = 4
EXIT_INTERRUPTED = 130

REACH = "Is the cluster running, and does it admit this address? Another cluster: --context, --kubeconfig."
"""What to do about an API server that does not answer."""


class CliError(Exception):
    """An error for the user: a sentence that names the input at fault, and the remedy."""

    exit_code = EXIT_ERROR

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class UsageError(CliError):
    """A flag, a file or a value is wrong."""

    exit_code = EXIT_USAGE


class TimeoutReached(CliError):
    """What was waited for did not happen in time."""

    exit_code = EXIT_TIMEOUT


class JobFailed(CliError):
    """The job that was waited for has failed."""

    exit_code = EXIT_JOB_FAILED


class ClusterError(CliError):
    """The cluster cannot be asked, or refuses."""


class NoKubeconfig(ClusterError):
    """There is no kubeconfig, or none that can be used."""


class LoginFailed(ClusterError):
    """The kubeconfig's login plug-in failed, or the API server does not accept the credentials."""


class Unreachable(ClusterError):
    """The API server does not answer."""


class MissingKind(ClusterError):
    """The API server does not know a kind."""


@dataclass(frozen=True)
class Answer:
    """A refusal as the API server sent it."""

    code: int
    reason: str
    message: str


class Refused(ClusterError):
    """The API server refused the request; `answer` is what it said."""

    def __init__(self, answer: Answer, remedy: str = "") -> None:
        super().__init__(answer.message, remedy)
        self.answer = answer


class NotFound(Refused):
    """There is no such object."""


class Forbidden(Refused):
    """The user's rights do not allow the request."""


class AlreadyThere(Refused):
    """An object of that name exists."""


class Conflict(Refused):
    """The object was changed by another client, or the request does not fit its state."""


class Invalid(Refused):
    """The API server's validation refuses the object."""


class Expired(Refused):
    """A watch cannot go on from that resource version: list again."""
