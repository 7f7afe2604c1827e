"""The reader for an address.

    with open_reader("s3://bucket/mnist/train") as reader: ...
    open_reader("/data/clicks", "reader_type=CSV; columns=['user', 'item']")

`reader_type` may be RecordIO or CSV. Without it the files decide: CSV if the name of one ends with `.csv`, RecordIO if
the first one begins with its magic number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from elasticdl.data.csv import SUFFIX, CsvReader
from elasticdl.data.params import parse_params
from elasticdl.data.reader import Reader
from elasticdl.data.recordio.chunk import MAGIC
from elasticdl.data.recordio.reader import RecordIOReader
from elasticdl.data.storage import STORE
from elasticdl.errors import DataError

FLAG = "--data_reader_params"
_READERS: dict[str, Callable[..., Reader]] = {"RecordIO": RecordIOReader, "CSV": CsvReader}
_LITTLE = MAGIC.to_bytes(4, "little")


def open_reader(uri: str, params: str | Mapping[str, Any] = "") -> Reader:
    """Return the reader for an address.

    Args:
        uri: a path, `file:///path` or `s3://bucket/prefix`.
        params: of --data_reader_params: `reader_type`, and the arguments of that reader.

    Raises:
        DataError: Nothing is there, it is of no known kind, or a parameter is wrong.
    """
    arguments = parse_params(FLAG, params)
    asked = arguments.pop("reader_type", None)
    kind = _known(asked) if asked is not None else _detected(uri)
    reader = _READERS[kind]
    allowed = [name for name in inspect.signature(reader).parameters if name != "address"]
    strange = [name for name in arguments if name not in allowed]
    if strange:
        knows = f"it knows {', '.join(allowed)}" if allowed else "it has no parameters"
        raise DataError(f"{FLAG}: the reader of {kind} does not know {', '.join(strange)}", knows)
    return reader(uri, **arguments)


def _known(name: object) -> str:
    for known in _READERS:
        if str(name).lower() == known.lower():
            return known
    if str(name).upper() == "ODPS":
        raise DataError(
            f"{FLAG}: reader_type=ODPS: tables of MaxCompute are not supported",
            "write a custom_data_reader in the model's module, or export the table as CSV",
        )
    raise DataError(f"{FLAG}: unknown reader_type {name!r}", f"known are {', '.join(_READERS)}")


def _detected(uri: str) -> str:
    """Return what an address holds, by the names in it, or by the first bytes of its first file."""
    found = STORE.files(uri)
    entries = [entry for entry in found if not entry.path.rpartition("/")[2].startswith("_")] or found
    if any(entry.path.lower().endswith(SUFFIX) for entry in entries):
        return "CSV"
    first = entries[0]
    with STORE.opened(first.name) as blob:
        begin = blob.read(0, min(4, blob.size))
    if begin == _LITTLE or not begin:
        return "RecordIO"
    raise DataError(
        f"{uri}: {first.name} is no RecordIO (it begins with {begin.hex(' ')}), and its name is of no other known kind",
        _remedy(first.name.lower()),
    )


def _remedy(name: str) -> str:
    if name.endswith((".gz", ".tgz", ".bz2", ".xz")):
        return "unpack it"
    if name.endswith((".txt", ".zip", ".tar", ".png", ".jpg", ".jpeg")):
        return "write it as CSV or RecordIO, or define a custom_data_reader in the model's module"
    return f'say what it is: {FLAG} "reader_type=…", one of {", ".join(_READERS)}'
