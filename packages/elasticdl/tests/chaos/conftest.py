"""The fixtures of the worker's tests with real processes."""

from __future__ import annotations

from packages.elasticdl.tests.worker.conftest import digits_records, etcd, farm

__all__ = ["digits_records", "etcd", "farm"]
