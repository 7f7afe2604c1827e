"""What can go wrong between the plug-in and a cluster.

ClusterError
├── Unreachable        no connection, no usable kubeconfig, or credentials that could not be had
├── UnknownKind        the API server does not serve the resource's apiVersion and kind
└── ApiError           the API server answered with a Status: `code`, `reason`, `message`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClusterError(Exception):
    """Base of everything that talking to a cluster raises."""


class Unreachable(ClusterError):
    """The cluster cannot be talked to at all."""


class UnknownKind(ClusterError):
    """The API server has no such kind (any more); perhaps its CustomResourceDefinition is missing."""

    def __init__(self, api_version: str, kind: str) -> None:
        super().__init__(f'no matches for kind "{kind}" in version "{api_version}"')


class ApiError(ClusterError):
    """A Status of the API server that is not a success."""

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = dict(details or {})

    @property
    def not_found(self) -> bool:
        """There is no such object, or no such path."""
        return self.code == 404

    @property
    def conflict(self) -> bool:
        """Another field manager owns a field, or the object changed meanwhile."""
        return self.code == 409 and self.reason == "Conflict"

    @property
    def immutable(self) -> bool:
        """A field was changed that can only be set when the object is created."""
        return self.code == 422 and "field is immutable" in str(self)

    @property
    def namespace_missing(self) -> bool:
        """The namespace of the object isn't there."""
        return self.not_found and self.details.get("kind") == "namespaces"


def from_status(code: int, status: Mapping[str, Any], fallback: str) -> ApiError:
    """The error that a Status object (or, for a proxy's answer, its text) stands for."""
    message = str(status.get("message") or fallback or f"HTTP status {code}")
    return ApiError(int(status.get("code") or code), str(status.get("reason") or ""), message, status.get("details"))
