"""The fixtures of the worker's tests."""

from __future__ import annotations

from packages.elasticdl.tests.worker.conftest import _one_thread

__all__ = ["_one_thread"]
