"""The global random generators that datasets use: seeded for each sample, and restored for the model.

    with generators_kept():
        seed_generators(seed, epoch, sample)
        item = dataset[sample]

A sample must be the same in every rank and process that prepares it. So its random numbers must depend only on seed,
epoch and sample. The model's random numbers (dropout) depend on seed, step, rank and micro-batch: see ``seed_model``.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_WORDS, _WORD_BYTES, _WORD_BITS = 624, 4, 32
_MERSENNE_TWISTER_BYTES = (_WORDS + 1) * _WORD_BYTES
"""The words of its state and the position in them, in any order."""
_SPARE = np.random.MT19937(0)
_numpy_random: Any = np.random  # its type information lacks the functions that exchange generators
_python_random: Any = random._inst
_seed_words: Any = super(random.Random, _python_random).seed
_PYTHON_ADDRESS = id(_python_random) + object.__basicsize__


@dataclass(frozen=True)
class Generator:
    """One of the three generators: how to seed it with 64 bits, and its state, to compare and to restore."""

    name: str
    seed: Callable[[int], object]
    state: Callable[[], Any]
    restore: Callable[[Any], object]


def _numpy_address() -> int:
    address: int = _numpy_random.get_bit_generator().ctypes.state_address
    return address


def _numpy_state() -> bytes:
    # The Python interface takes fifty times as long. Key and position: numpy/random/src/mt19937/mt19937.h
    return ctypes.string_at(_numpy_address(), _MERSENNE_TWISTER_BYTES)


def _numpy_restore(state: bytes) -> None:
    np.random.seed(0)  # drops the second number of a pair that randn has drawn, which is kept elsewhere
    ctypes.memmove(_numpy_address(), state, _MERSENNE_TWISTER_BYTES)


def _numpy_seed(number: int) -> None:
    # numpy uses 32 bits and torch the lower 32 of 64: with the same ones both would draw the same.
    number >>= _WORD_BITS
    current = _numpy_random.get_bit_generator()
    if isinstance(current, np.random.MT19937):
        np.random.seed(number)
    elif type(current).__module__.startswith("numpy."):  # set_bit_generator: numpy can seed no other kind
        current.state = type(current)(number).state


def _python_state() -> tuple[bytes, float | None]:
    # getstate and setstate convert 625 integers, which is ten times slower. RandomObject: Modules/_randommodule.c
    return ctypes.string_at(_PYTHON_ADDRESS, _MERSENNE_TWISTER_BYTES), _python_random.gauss_next


def _python_restore(state: tuple[bytes, float | None]) -> None:
    ctypes.memmove(_PYTHON_ADDRESS, state[0], _MERSENNE_TWISTER_BYTES)
    _python_random.gauss_next = state[1]


def _as_getstate_has_it(state: tuple[bytes, float | None]) -> tuple[Any, ...]:
    position, *words = struct.unpack(f"i{_WORDS}I", state[0])
    return random.Random.VERSION, (*words, position), state[1]


def _python_seed(number: int) -> None:
    # random.seed does the same when it has found out that this is a number.
    _seed_words(number)
    _python_random.gauss_next = None


def _torch_seed(number: int) -> None:
    # Not torch.manual_seed, which would also seed the GPU's generator; that one belongs to the model.
    torch.default_generator.manual_seed(number >> 1)


def _torch_state() -> bytes:
    state = torch.default_generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.numel())


def _torch_restore(state: bytes) -> None:
    torch.default_generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


GENERATORS = (
    Generator("random", _python_seed, _python_state, _python_restore)
    if _as_getstate_has_it(_python_state()) == random.getstate()
    else Generator("random", random.seed, random.getstate, random.setstate),
    Generator("numpy", _numpy_seed, _numpy_state, _numpy_restore),
    Generator("torch", _torch_seed, _torch_state, _torch_restore),
)


States = list[tuple[Generator, Any]]
"""Generators, with the states that they have, or are to have again."""


def seed_script(seed: int) -> None:
    """Seed all generators for what a script builds: its model, and a split of its data."""
    torch.manual_seed(seed)
    random.seed(seed)
    _numpy_seed(seed % 2**_WORD_BITS << _WORD_BITS)


def seed_generators(seed: int, epoch: int, sample: int, which: Sequence[Generator] = GENERATORS) -> None:
    """Seed these generators, so that their next numbers are a function of seed, epoch and sample."""
    _seed(f"{seed}/{epoch}/{sample}", which)


def seed_model(seed: int, step: int, rank: int, micro: int, device: torch.device) -> None:
    """Seed all generators for a forward pass: that of micro-batch ``micro`` of a rank's part of a step.

    It does so always, because the model may draw at any time; it takes 10 us.
    """
    _seed_all(f"{seed}/model/{step}/{rank}/{micro}", device)


def seed_alike(seed: int, what: str, step: int, device: torch.device) -> None:
    """Seed all generators for what every rank must do alike in a step: an optimizer that adds noise, for example."""
    _seed_all(f"{seed}/{what}/{step}", device)


@contextmanager
def drawn_alike(seed: int, what: str, step: int, device: torch.device) -> Iterator[None]:
    """Do the same, and restore the generators at the end, for a script that draws by itself between the steps."""
    gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    with generators_kept():
        seed_alike(seed, what, step, device)
        try:
            yield
        finally:
            if gpu is not None:
                torch.cuda.set_rng_state(gpu, device)


def _seed_all(text: str, device: torch.device) -> None:
    number = _seed(text)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number >> 1)


def _seed(text: str, which: Sequence[Generator] = GENERATORS) -> int:
    """Seed these generators with 64 bits that depend on the text. Return the number."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    for generator in which:
        generator.seed(number)
    return number


def seedable_numpy_generator() -> Any:
    """Make numpy's functions use a Mersenne Twister, the only one of its generators that they can seed.

    Return the generator of another kind that was replaced; None if none was.
    """
    current = _numpy_random.get_bit_generator()
    if isinstance(current, np.random.MT19937):
        return None
    _numpy_random.set_bit_generator(_SPARE)
    return current


def states() -> States:
    """Return the states of all generators. numpy's must be a Mersenne Twister (see ``seedable_numpy_generator``)."""
    return [(generator, generator.state()) for generator in GENERATORS]


@contextmanager
def generators_kept() -> Iterator[States]:
    """Restore the global generators at the end, because the model may use them.

    Yield their states. Remove from these what is known to be unchanged: to look costs as much as to note them.
    """
    replaced = seedable_numpy_generator()
    before = states()
    try:
        yield before
    finally:
        for generator, state in before:
            if generator.state() != state:
                generator.restore(state)
        if replaced is not None:
            _numpy_random.set_bit_generator(replaced)
