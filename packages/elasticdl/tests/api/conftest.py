"""Fixtures of the tests of scripts of one's own."""

from __future__ import annotations

from tests.digits import digits
from tests.elastic.conftest import etcd

__all__ = ["digits", "etcd"]
