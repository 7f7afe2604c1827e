"""What can go wrong between the plug-in and a cluster.

ClusterError
├── Unreachable        no connection, no usable kubeconfig, or no credentials
├── UnknownKind        the API server does not serve the resource's apiVersion and kind
└── ApiError           the API server answered with a Status: `code`, `reason`, `message`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClusterError(Exception):
    """Base of everything that talking to a cluster raises."""


class Unreachable(ClusterError):
    """There is no answer from the cluster."""


class UnknownKind(ClusterError):
    """The API server has no such kind; its CustomResourceDefinition may be missing."""

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
        """The object, or its path, does not exist."""
        return self.code == 404

    @property
    def immutable(self) -> bool:
        """The request changes a field that can only be set when the object is created."""
        return self.code == 422 and "field is immutable" in str(self)

    @property
    def no_dry_run(self) -> bool:
        """An admission webhook has side effects, so it cannot take part in a dry run."""
        return "does not support dry run" in str(self)

    @property
    def namespace_missing(self) -> bool:
        """The object's namespace does not exist."""
        return self.not_found and self.details.get("kind") == "namespaces"
