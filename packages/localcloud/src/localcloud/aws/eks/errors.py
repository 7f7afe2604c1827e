"""EKS's exceptions, with the members of their shapes in the API.

https://docs.aws.amazon.com/eks/latest/APIReference/API_Operations.html lists which operation raises which.
"""

from __future__ import annotations

from collections.abc import Mapping

STATUS = {
    "ResourceNotFoundException": 404,
    "NotFoundException": 404,
    "ResourceInUseException": 409,
    "InvalidParameterException": 400,
    "InvalidRequestException": 400,
    "InvalidTokenException": 400,
    "AccessDeniedException": 400,
}


class EksError(Exception):
    """An error of the API. `code` is the exception's name; `members` are its other fields."""

    def __init__(self, code: str, message: str, members: Mapping[str, str | None] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.members = {name: value for name, value in (members or {}).items() if value is not None}

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return STATUS[self.code]


def not_found(message: str, **members: str) -> EksError:
    """Return the error for a resource that doesn't exist."""
    return EksError("ResourceNotFoundException", message, members)


def in_use(message: str, **members: str) -> EksError:
    """Return the error for a name that exists already, or a resource that something else still needs."""
    return EksError("ResourceInUseException", message, members)


def invalid(message: str, **members: str) -> EksError:
    """Return the error for a parameter with an invalid value."""
    return EksError("InvalidParameterException", message, members)


def refused(message: str, **members: str) -> EksError:
    """Return the error for a request that the resource's current state doesn't allow."""
    return EksError("InvalidRequestException", message, members)
