"""Fixtures of the tests with real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.elastic.conftest import s3, s3_endpoint

__all__ = ["s3", "s3_endpoint"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads that wait for each other are far slower than one where other processes use the cores, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
