"""What the tests of both loaders share: sequences of memberships, the samples of a step, and drawn numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from hypothesis import strategies as st

from tidewater.elastic.data.loader import Prepared

memberships = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 6)).map(lambda t: (t[0], t[1] % t[0], t[2])),
    min_size=1,
    max_size=12,
)
"""The size, our rank and the number of steps of each."""


def samples_of(prepared: Prepared) -> list[int]:
    return [int(index) for micro in prepared.micro if micro.weight for index in micro.batch[0]]


def draws() -> list[float]:
    """Return a number of each generator."""
    return [float(torch.rand(())), random.random(), float(np.random.rand())]


@contextmanager
def generators_unchanged() -> Iterator[None]:
    """Assert that what is done draws no number from the generators of this process, nor seeds them."""

    def seed() -> None:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)

    seed()
    expected = draws()
    seed()
    yield
    assert draws() == expected
