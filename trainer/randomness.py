"""The global random generators that datasets draw from: seeded per sample, and kept apart from the model's draws.

    with generators_kept():
        seed_generators(seed, epoch, sample)
        item = dataset[sample]

A sample must look the same whichever rank or process prepares it, so what is drawn for it may depend on nothing
but seed, epoch and sample.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_WORDS, _WORD_BITS = 624, 32
_SPARE = np.random.MT19937(0)
_numpy_random: Any = np.random  # its type information lacks the exchange of generators


@dataclass(frozen=True)
class Generator:
    """One of the three: how to seed it with 64 bits, and a picture of its state to compare."""

    name: str
    seed: Callable[[int], object]
    state: Callable[[], object]


def _numpy_state() -> bytes:
    # Through its Python interface that takes fifty times as long. Key and position: numpy/random/src/mt19937/mt19937.h
    return ctypes.string_at(_SPARE.ctypes.state_address, (_WORDS + 1) * _WORD_BITS // 8)


def _torch_state() -> bytes:
    return torch.default_generator.get_state().numpy().tobytes()


GENERATORS = (
    Generator("random", random.seed, random.getstate),
    # numpy takes 32 bits and torch's generator the lower 32 of 64: not the same ones, or they would draw the same.
    Generator("numpy", lambda number: np.random.seed(number >> _WORD_BITS), _numpy_state),
    # Not torch.manual_seed: that would set the GPU's generator, which belongs to the model.
    Generator("torch", lambda number: torch.default_generator.manual_seed(number >> 1), _torch_state),
)


def seed_generators(seed: int, epoch: int, sample: int, which: Sequence[Generator] = GENERATORS) -> None:
    """Make what is drawn from these next a function of the three numbers."""
    if which:
        text = f"{seed}/{epoch}/{sample}".encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
        for generator in which:
            generator.seed(number)


def own_numpy_generator() -> Any:
    """Have numpy's functions draw from a generator of this module's; returns the one before."""
    before = _numpy_random.get_bit_generator()
    _numpy_random.set_bit_generator(_SPARE)
    return before


@contextmanager
def generators_kept() -> Iterator[None]:
    """Leave the global generators as they were: the model may draw from them."""
    pythons, torchs = random.getstate(), torch.default_generator.get_state()
    numpys = own_numpy_generator()  # to copy its state would take a tenth of a millisecond
    try:
        yield
    finally:
        random.setstate(pythons)
        torch.default_generator.set_state(torchs)
        _numpy_random.set_bit_generator(numpys)
