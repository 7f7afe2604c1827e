"""The digits as image files."""

from tests.digits import digits

__all__ = ["digits"]
