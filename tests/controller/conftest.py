"""Fixtures of the controller's tests."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def same_jitter() -> Iterator[None]:
    """Let back-offs and polls have the same jitter in each run, so that in virtual time each run is the same."""
    before = random.getstate()
    random.seed(0)
    yield
    random.setstate(before)
