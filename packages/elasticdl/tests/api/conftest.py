"""Fixtures of the tests of scripts of one's own."""

from __future__ import annotations

from tests.suite.digits import digits

__all__ = ["digits"]
