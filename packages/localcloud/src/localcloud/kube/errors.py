"""The errors of the Kubernetes half: each names the process or object at fault.

CloudError
└── KubeError              a control plane, node or addon could not do what was asked
    └── ApiError           the API server answered with an error; has its HTTP `status`
"""

from __future__ import annotations

from localcloud.errors import CloudError


class KubeError(CloudError):
    """A control plane, node or addon could not do what was asked."""


class ApiError(KubeError):
    """The API server refused a request.

    Args:
        status: HTTP status code; 0 if there was no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
