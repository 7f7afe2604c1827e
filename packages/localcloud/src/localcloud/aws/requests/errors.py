"""The exception for a request that may not pass."""

from __future__ import annotations


class Refused(Exception):
    """The request is not carried out; `reason` is one of the keys of `replies.CODES`."""

    def __init__(self, reason: str, message: str, service: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.service = service
