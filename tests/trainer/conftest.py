"""The digits as image files."""

from tests.suite.digits import digits

__all__ = ["digits"]
