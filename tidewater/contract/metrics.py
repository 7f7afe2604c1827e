"""The ports on which a worker's processes serve their metrics, as its container declares them; who reads them.

    ports(2)      # [{"name": "metrics", "containerPort": 9464}, {"name": "metrics-1", "containerPort": 9465}]

`tidewater top` and a Prometheus PodMonitor find them by these names.
"""

from __future__ import annotations

NAMESPACE = "tidewater-monitoring"
"""Of the stack's own Prometheus."""

FIRST_PORT = 9464
"""Port of a worker's first process, the same as that of OpenTelemetry's exporters for Prometheus. The others use the
ports after it."""

READY_PATH = "/ready"
"""At these ports: 200 once the process has joined the others, and 503 before that."""


def ports(processes: int) -> list[dict[str, object]]:
    """Return one container port for each process of a worker."""
    return [
        {"name": f"metrics-{number}" if number else "metrics", "containerPort": FIRST_PORT + number}
        for number in range(processes)
    ]
