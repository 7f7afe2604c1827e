"""What can be written as RecordIO: data at an address, or a dataset by its name.

source = open_source("digits", Options())
source.about             # "8 x 8 handwritten digits of scikit-learn"
next(source.records())   # the bytes of a record
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticdl.data.csv import CsvReader
from elasticdl.data.examples.fields import encode
from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Reader, Record
from elasticdl.errors import MissingData

SAID = "generated: no person clicked"
_HIDDEN = 4
_BLOCK = 4096
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Source:
    """Records to write, in an order in which parts of the data look alike."""

    about: str
    """What it is, for the manifest."""
    records: Callable[[], Iterator[bytes]]
    test_share: float
    """The share of the records that is for testing, unless the user gives another one."""


@dataclass(frozen=True)
class Asked:
    """What a person may say of a source."""

    data_reader_params: str | Mapping[str, Any] = ""
    """Of data at an address."""
    records: int | None = None
    """Of a generated dataset: how many."""


def open_source(name: str, asked: Asked) -> Source:
    """Return the dataset of a name, or the data at an address. Raise DataError if there is none."""
    if name in NAMED:
        return NAMED[name](asked)
    reader = open_reader(name, asked.data_reader_params)
    reader.shards()  # what is missing or cut off shows before anything is written
    return Source(name, lambda: _read(reader), 0.0)


def _read(reader: Reader) -> Iterator[bytes]:
    with reader:
        shards = reader.shards()
        convert = _conversion(reader)
        for shard in shards:
            for record in reader.read(shard):
                yield convert(record)


def _conversion(reader: Reader) -> Callable[[Record], bytes]:
    """Return how a reader's records become bytes."""
    if isinstance(reader, CsvReader):
        names = reader.metadata.column_names or ()
        types = _column_types(reader, len(names))
        return lambda row: encode({name: kind(value) for name, kind, value in zip(names, types, row, strict=True)})
    return bytes  # of RecordIO they are bytes already


def _column_types(reader: Reader, columns: int) -> list[Callable[[str], Any]]:
    """Return what the texts of each column are, from all rows: whole numbers, numbers or texts."""
    left: list[list[Callable[[str], Any]]] = [[int, float, str] for _ in range(columns)]
    for shard in reader.shards():
        for row in reader.read(shard):
            for kinds, value in zip(left, row, strict=True):
                while not _is(kinds[0], value):
                    kinds.pop(0)
    return [kinds[0] for kinds in left]


def _is(kind: Callable[[str], Any], text: str) -> bool:
    """Return whether a text is of a kind. Whole numbers must fit into 64 bits; `1_000` is a text."""
    if kind is str:
        return True
    try:
        value = kind(text)
    except ValueError:
        return False
    return "_" not in text and (kind is float or -(2**63) <= value < 2**63)


def _digits(asked: Asked) -> Source:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingData("digits: scikit-learn, which ships them, is not installed", "install scikit-learn") from error
    data = load_digits()
    # 17 shades, 0 to 16; as in MNIST, 0 to 255 here.
    images = np.minimum(np.asarray(data.images) * 16, 255).astype(np.uint8)
    return _of_arrays("8 x 8 handwritten digits of scikit-learn", images, np.asarray(data.target))


def _generated_clicks(asked: Asked) -> Source:
    size = Clicks() if asked.records is None else Clicks(records=asked.records)
    return Source(f"clicks ({SAID})", lambda: (encode(fields) for fields in generated(size)), 0.2)


NAMED: dict[str, Callable[[Asked], Source]] = {
    "digits": _digits,
    "generated-clicks": _generated_clicks,
}
"""Datasets that have a name."""


def _of_arrays(about: str, images: Any, labels: Any) -> Source:
    """Return images with labels, in an order that is the same everywhere and mixes the classes."""
    order = sorted(range(len(images)), key=lambda index: hashlib.sha256(b"%d" % index).digest())
    return Source(
        about,
        lambda: (encode({"image": images[index], "label": np.int64(labels[index])}) for index in order),
        0.2,
    )


@dataclass(frozen=True)
class Clicks:
    """How large the world of the dataset is. Ids begin at 1, so that 0 can stand for none."""

    records: int = 20_000
    users: int = 500
    items: int = 200
    history: int = 5
    """Items in `history`: some that the user likes, in no order; 0 where there are fewer."""


def generated(size: Clicks) -> Iterator[dict[str, Any]]:
    """Yield the fields of each record: user, item, history, fresh and label (1: clicked).

    Users and items have hidden vectors. A user is shown an item, popular items more often, and clicks with a
    probability that grows with the product of the two vectors, with the item's quality and with how fresh the item is.
    So a model can learn users and items only through embeddings, and no model predicts every click.
    """
    world = np.random.default_rng([0, 0])
    users = world.normal(size=(size.users, _HIDDEN))
    items = world.normal(size=(size.items, _HIDDEN))
    quality = world.normal(scale=0.5, size=size.items)
    popularity = 1.0 / np.arange(1, size.items + 1)
    liked = _liked(users @ items.T, size.history, world)
    for block, start in enumerate(range(0, size.records, _BLOCK)):
        draw = np.random.default_rng([0, 1, block])
        count = min(_BLOCK, size.records - start)
        user = draw.integers(size.users, size=count)
        item = draw.choice(size.items, size=count, p=popularity / popularity.sum())
        fresh = draw.random(count)
        odds = 1.5 * (users[user] * items[item]).sum(1) + quality[item] + fresh - 1.0
        label = draw.random(count) < 1.0 / (1.0 + np.exp(-odds))
        for row in range(count):
            yield {
                "user": np.int64(user[row] + 1),
                "item": np.int64(item[row] + 1),
                "history": liked[user[row]],
                "fresh": np.float32(fresh[row]),
                "label": np.int64(label[row]),
            }


def _liked(affinity: Floats, length: int, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return, for each user, up to `length` items among those that the user likes best, filled up with 0."""
    best = np.argsort(-affinity, axis=1, kind="stable")[:, :length] + 1
    return np.where(draw.random(best.shape) < 0.8, best, 0).astype(np.int64)
