"""What a request to the API server may fail with.

    ClusterError            base; the request failed
    ├── Unavailable         no answer, or one that says to try later: try again
    ├── NotFound            the object does not exist
    ├── Exists              create: an object of that name exists
    ├── Conflict            the object has changed since it was read: read it again, decide again
    ├── Gone                the watch or list is too old to continue: list again
    ├── Refused             the API server does not accept the object: a user must change something
    └── NotLeader           not sent, since this process may no longer be the leader

Names follow the reasons of Kubernetes' ``Status``:
https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CONFLICT = 409
_TOO_MANY = 429
_SERVER_ERROR = 500


class ClusterError(Exception):
    """A request failed. ``status`` is the HTTP status, 0 if there was no answer."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unavailable(ClusterError):
    """No answer, or one that says to try later. A write may have been carried out, or may be later.

    Args:
        message: What happened.
        status: The HTTP status, 0 if there was no answer.
        retry_after: Seconds that the API server asks to wait; 0 if it does not say.
    """

    def __init__(self, message: str, *, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class NotFound(ClusterError):
    """The object does not exist."""


class Exists(ClusterError):
    """An object of that name exists."""


class Conflict(ClusterError):
    """The object has another resourceVersion or uid than the request names."""


class Gone(ClusterError):
    """The resourceVersion is too old to watch from, or the list is too old to continue."""


class Refused(ClusterError):
    """The API server does not accept the object. The same request fails again until a user changes something."""


class NotLeader(ClusterError):
    """The request was not sent, since this process may no longer be the leader."""


_BY_STATUS: Mapping[int, type[ClusterError]] = {400: Refused, 403: Refused, 404: NotFound, 410: Gone, 422: Refused}


def error_of(code: int, status: Mapping[str, Any], retry_after: float = 0.0) -> ClusterError:
    """Return the error for an answer.

    Args:
        code: The HTTP status, or the ``code`` of a watch's ERROR event.
        status: The answer's ``Status`` object; empty if it was none.
        retry_after: The answer's Retry-After in seconds; 0 without one.
    """
    reason, message = status.get("reason", ""), status.get("message") or f"the API server answered {code}"
    if reason == "AlreadyExists":
        return Exists(message, status=code)
    if code == _CONFLICT:
        return Conflict(message, status=code)
    if code == _TOO_MANY or code >= _SERVER_ERROR:
        return Unavailable(message, status=code, retry_after=retry_after)
    return _BY_STATUS.get(code, ClusterError)(message, status=code)
