"""The first value of every row of an embedding table, the same wherever the row is created.

    users = Table("user", 16, "normal(0,0.01)", seed=7)
    rows = initial_rows(users, torch.tensor([3, 1_000_000_007]))  # float32, (2, 16)

A row depends on the table's seed and name and on the id, and on nothing else: not on the server that creates it, nor on
which rows were created before. So a job gives the same rows with any number of parameter servers, with none, and after
a server that was lost creates a row again.

The generator is counter-based: number `c` of a row is `mix(mix(key + id) + c)`, where `mix` is the output function of
SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014, figure 16) and `key` is
taken from the SHA-256 of seed and name. `uniform` and `constant` give the same bits on every machine. `normal` uses
log and cos; the last bit of their results depends on the machine's C library.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elasticdl.errors import InputError

DEFAULT = "uniform(-0.05,0.05)"
"""As Keras' "uniform", the default of ElasticDL's layer."""

_SHORT = {"uniform": DEFAULT, "normal": "normal(0,0.05)", "zeros": "constant(0)", "ones": "constant(1)"}
_NUMBERS = {"uniform": 2, "normal": 2, "constant": 1}
_FORM = re.compile(r"(\w+)\(([^()]*)\)")
_KNOWN = "known are uniform(low,high), normal(mean,deviation), constant(value), zeros and ones"

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Initializer:
    """How the numbers of a new row are drawn."""

    kind: str
    """uniform, normal or constant."""
    numbers: tuple[float, ...]
    """(low, high), (mean, deviation) or (value,)."""

    @staticmethod
    @lru_cache
    def parse(text: str) -> Initializer:
        """Return the initializer that a text like `normal(0,0.01)` names; raise InputError that says what is known."""
        found = _FORM.fullmatch(_SHORT.get(text.strip(), text.strip()).replace(" ", ""))
        if not found or found[1] not in _NUMBERS:
            raise InputError(f"unknown initializer of an embedding table: {text!r}", _KNOWN)
        try:
            numbers = tuple(float(number) for number in found[2].split(","))
        except ValueError:
            raise InputError(f"the initializer {text!r} has an argument that is no number", _KNOWN) from None
        if len(numbers) != _NUMBERS[found[1]] or not all(np.isfinite(numbers)):
            raise InputError(
                f"the initializer {text!r} has {len(numbers)} arguments, or one that is not finite", _KNOWN
            )
        if found[1] == "uniform" and numbers[0] > numbers[1]:
            raise InputError(f"the initializer {text!r} has a lower bound above its upper bound", "exchange the two")
        if found[1] == "normal" and numbers[1] < 0:
            raise InputError(f"the initializer {text!r} has a negative deviation", "give one of 0 or more")
        return Initializer(found[1], numbers)


@dataclass(frozen=True)
class Table:
    """An embedding table: what workers, parameter servers and checkpoints must agree on."""

    name: str
    dim: int
    """Numbers in a row."""
    initializer: str = DEFAULT
    seed: int = 0
    num_ids: int | None = None
    """Ids are in [0, num_ids); None: any id that is not negative. No room is reserved: rows exist once touched."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("an embedding table has no name", "name it: Table('user', 16)")
        if self.dim < 1:
            raise InputError(f"embedding table {self.name!r}: dim is {self.dim}", "a row has at least one number")
        if self.num_ids is not None and self.num_ids < 1:
            raise InputError(f"embedding table {self.name!r}: num_ids is {self.num_ids}", "give at least 1, or None")
        Initializer.parse(self.initializer)

    def to_json(self) -> str:
        """Return the table as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Table:
        """Return the table that `to_json` wrote; raise InputError for anything else."""
        try:
            fields: dict[str, Any] = json.loads(text)
            return Table(**fields)
        except (ValueError, TypeError) as error:
            raise InputError(f"this is no embedding table: {text[:200]!r} ({error})", "see Table.to_json") from None


def initial_rows(table: Table, ids: torch.Tensor) -> torch.Tensor:
    """Return the first values of rows.

    Args:
        table: the table that has the rows.
        ids: int64, one-dimensional; may repeat.

    Returns:
        float32, (len(ids), table.dim), on the CPU.
    """
    initializer = Initializer.parse(table.initializer)
    shape = (ids.numel(), table.dim)
    if initializer.kind == "constant":
        return torch.full(shape, initializer.numbers[0])
    rows = _mix(ids.detach().cpu().numpy().astype(np.uint64) * _GAMMA + _key(table.seed, table.name))
    if initializer.kind == "uniform":
        low, high = initializer.numbers
        drawn = low + (high - low) * _unit(rows, np.arange(table.dim, dtype=np.uint64))
    else:
        mean, deviation = initializer.numbers
        drawn = mean + deviation * _normal(rows, table.dim)
    return torch.from_numpy(drawn.astype(np.float32))


@lru_cache
def _key(seed: int, name: str) -> np.uint64:
    """Return 64 bits that differ for each seed and each table's name."""
    return np.uint64(int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "little"))


def _mix(words: Words) -> Words:
    """Return the words, each scrambled into another one: a bijection of 64 bits."""
    words = (words ^ (words >> np.uint64(30))) * _FACTOR_1
    words = (words ^ (words >> np.uint64(27))) * _FACTOR_2
    return words ^ (words >> np.uint64(31))


def _unit(rows: Words, columns: Words) -> npt.NDArray[np.float64]:
    """Return numbers in [0, 1), of 53 random bits, for each row and column."""
    words = _mix(rows[:, None] + (columns[None, :] + np.uint64(1)) * _GAMMA)
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _normal(rows: Words, dim: int) -> npt.NDArray[np.float64]:
    """Return standard normal numbers by the transformation of Box and Muller, each of two uniform ones."""
    columns = np.arange(dim, dtype=np.uint64) * np.uint64(2)
    radius = np.sqrt(-2.0 * np.log1p(-_unit(rows, columns)))  # the argument is in (0, 1]
    angle = 2.0 * np.pi * _unit(rows, columns + np.uint64(1))
    return np.asarray(radius * np.cos(angle))
