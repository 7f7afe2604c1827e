"""What a request to the API server may fail with.

ErrorWithRemedy              a sentence that names the input at fault, and the remedy
└── ClusterError             the request failed
    ├── NoAccess             the cluster can't be asked
    │   ├── NoKubeconfig     there is no usable kubeconfig
    │   ├── LoginFailed      the login plug-in failed, or the API server does not accept the credentials (401)
    │   └── Unreachable      no answer; also an Unavailable
    ├── Unavailable          no answer, or one that says to try later: a write may have been carried out
    ├── MissingKind          the API server does not know the kind: its CRD is not installed
    └── ApiError             the API server's own answer
        ├── NotFound         404
        ├── Exists           409, AlreadyExists: an object of that name exists
        ├── Conflict         409, any other reason: the object has changed since it was read
        ├── Gone             410: the watch or list is too old to continue: list again
        ├── Busy             429 or 5xx; also an Unavailable
        └── Refused          the same request fails again until a user changes something
            ├── Forbidden    403: the user's rights, or a quota
            └── Invalid      400 or 422: validation

https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_UNAUTHORIZED, _NOT_FOUND, _CONFLICT, _TOO_MANY, _SERVER_ERROR = 401, 404, 409, 429, 500
_LONGEST = 300


class ErrorWithRemedy(Exception):
    """An error for the user: a sentence that names the input at fault, and the remedy."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class ClusterError(ErrorWithRemedy):
    """A request failed.

    Attributes:
        status: the HTTP status, 0 if there was no answer.
        reason: the `reason` of the API server's Status.
        details: the `details` of the API server's Status.
        retry_after: seconds that the API server asks to wait; 0 if it does not say.
    """

    def __init__(self, message: str, remedy: str = "", *, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.retry_after = retry_after
        self.reason = ""
        self.details: Mapping[str, Any] = {}


class NoAccess(ClusterError):
    """The cluster can't be asked."""


class NoKubeconfig(NoAccess):
    """There is no kubeconfig, or none that can be used."""


class LoginFailed(NoAccess):
    """The kubeconfig's login plug-in failed, or the API server does not accept the credentials."""


class Unavailable(ClusterError):
    """No answer, or one that says to try later. A write may have been carried out, or may be later."""


class Unreachable(NoAccess, Unavailable):
    """The API server does not answer."""


class MissingKind(ClusterError):
    """The API server does not know a kind."""


class ApiError(ClusterError):
    """The API server answered with something else than success; the message is its own sentence."""


class NotFound(ApiError):
    """The object does not exist."""


class Exists(ApiError):
    """An object of that name exists."""


class Conflict(ApiError):
    """The object has another resourceVersion or uid than the request names, or another state than the request needs."""


class Gone(ApiError):
    """The resourceVersion is too old to watch from, or the list is too old to continue."""


class Busy(ApiError, Unavailable):
    """The API server says to try later."""


class Refused(ApiError):
    """The API server does not accept the request. The same one fails again until a user changes something."""


class Forbidden(Refused):
    """The user's rights or a quota do not allow the request."""


class Invalid(Refused):
    """The API server's validation refuses the object."""


_BY_STATUS: Mapping[int, type[ClusterError]] = {
    400: Invalid,
    _UNAUTHORIZED: LoginFailed,
    403: Forbidden,
    _NOT_FOUND: NotFound,
    _CONFLICT: Conflict,
    410: Gone,
    422: Invalid,
    _TOO_MANY: Busy,
}


def error_of(code: int, reason: str, message: str) -> ClusterError:
    """Return the error for an answer, by HTTP status, and reason and message of its `Status` object."""
    kind = Exists if reason == "AlreadyExists" else _BY_STATUS.get(code, Busy if code >= _SERVER_ERROR else ApiError)
    error = kind(message or f"the API server answered {code}", status=code)
    error.reason = reason
    return error


def error_of_status(code: int, status: Mapping[str, Any]) -> ClusterError:
    """Return the error for an answer or, with its `code`, for a watch's ERROR event; `status` is a `Status` object."""
    error = error_of(code, str(status.get("reason") or ""), str(status.get("message") or ""))
    error.details = status.get("details") or {}
    return error


def error_of_text(code: int, text: str) -> ClusterError:
    """Return the error for an answer. Its body is a `Status` object or, from a proxy for example, anything else."""
    status = status_of(text)
    if status is None:
        return error_of(code, "", f"the API server answered {code}: {text.strip()[:_LONGEST]}")
    return error_of_status(code, status)


def status_of(text: str) -> Mapping[str, Any] | None:
    """Return the `Status` object in the body of an answer; None if it is something else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None
