"""Pages of a list, for all services of this cloud."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any


def page(items: Sequence[Any], token: str | None, size: int) -> tuple[Sequence[Any], str | None]:
    """Return a page of a list, and the token of the next one.

    Raises:
        ValueError: The token is not one of these.
    """
    start = int(base64.b64decode(token, validate=True)) if token else 0
    end = start + size
    return items[start:end], base64.b64encode(str(end).encode()).decode() if end < len(items) else None
