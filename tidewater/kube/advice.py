"""What the user of a command can do about an answer of the API server, or about none.

raise advised(error_of(403, "Forbidden", "pods is forbidden"))
"""

from __future__ import annotations

from tidewater.kube.errors import ClusterError, Forbidden, NotFound

REACH = "Is the cluster running, and does it admit this address? Another cluster: --context, --kubeconfig."
"""What to do about an API server that does not answer."""

_TOO_MANY = 429


def advised(error: ClusterError) -> ClusterError:
    """Give an error of the API server a remedy, unless its own sentence says what to do; return it."""
    if isinstance(error, Forbidden):
        error.remedy = "Ask an administrator of the cluster for this right; `kubectl auth can-i --list` shows yours."
    elif isinstance(error, NotFound) and error.message.startswith("namespaces "):
        error.remedy = "Choose another namespace, or create it: kubectl create namespace NAME"
    elif error.status == _TOO_MANY:
        error.remedy = "The API server is busy. Try again in a moment."
    return error
