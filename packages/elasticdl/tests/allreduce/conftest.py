"""Fixtures of the tests of AllreduceStrategy."""

from __future__ import annotations

from packages.elasticdl.tests.worker.conftest import clicks_records, digits_records
from tests.elastic.conftest import etcd

__all__ = ["clicks_records", "digits_records", "etcd"]
