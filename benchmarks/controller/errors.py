"""What ends a turn or the benchmark.

BenchmarkError
├── PlaneError     the API server or etcd has ended, or isn't ready in time
└── TurnFailed     a controller has ended, or doesn't do in time what the turn waits for
"""

from __future__ import annotations


class BenchmarkError(Exception):
    """The message names the process at fault."""


class PlaneError(BenchmarkError):
    """The API server or etcd has ended, or isn't ready in time."""


class TurnFailed(BenchmarkError):
    """A controller has ended, or doesn't do in time what the turn waits for."""
