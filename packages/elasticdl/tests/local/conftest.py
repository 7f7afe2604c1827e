"""The fixtures of the worker's tests."""

from __future__ import annotations

from packages.elasticdl.tests.worker.conftest import _one_thread, clicks_records, digits_records

__all__ = ["_one_thread", "clicks_records", "digits_records"]
