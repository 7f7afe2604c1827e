"""Fixtures of the tests of AllreduceStrategy."""

from __future__ import annotations

from tests.elasticdl.worker.conftest import clicks_records, digits_records
from tests.trainer.conftest import etcd

__all__ = ["clicks_records", "digits_records", "etcd"]
