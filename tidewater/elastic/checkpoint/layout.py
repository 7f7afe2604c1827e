"""The layout of a state in a file: torch creates it for the first checkpoint, and later ones reuse it.

    layout = Layout()                        # keep it for all checkpoints of a job
    with files.create(DATA) as file:
        metadata = layout.write(file, parts.public)      # the content of DCP's .metadata

``torch.distributed.checkpoint`` plans every save again and calls ``torch.save`` for every value. That takes about 0.4
ms of Python for each value, during which the training thread can't have the GIL. But between checkpoints of one job
only the bytes of the tensors and a few numbers change. So this module keeps the plan, and the bytes that ``torch.save``
writes before and after each tensor. The result is the same, except that torch's zip records have no CRC, as with
``torch.utils.serialization.config.save.compute_crc32 = False``. torch does not read the CRC, and the manifest has a
sha256 of every file.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta

from tidewater.elastic.checkpoint.files import File

DATA = "__0_0.distcp"
METADATA = ".metadata"
"""The file names that DCP uses when a single process writes."""

_LOCAL_HEADER = 30
_LENGTHS = slice(26, 30)
"""Offset of the lengths of name and extra field in a zip file's local header (PKWARE's APPNOTE, 4.3.7)."""

Frame = tuple[bytes, bytes]


class Layout:
    """The layout of the last state that was written."""

    def __init__(self) -> None:
        self._shape: list[object] = []
        self._metadata: Metadata
        self._indices: dict[str, MetadataIndex] = {}
        self._frames: dict[object, Frame | None] = {}
        self._values: dict[str, tuple[str, bytes]] = {}
        self._places: list[tuple[int, int]] = []
        self._encoded = b""

    def write(self, file: File, state: Mapping[str, Any]) -> bytes:
        """Write all values of a state, one after another. Return the metadata, which says where they are.

        Raise OSError from ``file``, and ValueError if two values have one name.
        """
        planner = DefaultSavePlanner(flatten_sharded_tensors=False)
        planner.set_up_planner(dict(state), is_coordinator=True)
        flat = planner.state_dict
        shape = [(name, _signature(value)) for name, value in flat.items()]
        if shape != self._shape:
            self._plan(planner)
        places = []
        for name, value in flat.items():
            start = file.size
            if isinstance(value, Tensor):
                self._write_tensor(file, value)
            else:
                file.write(self._pickled(name, value))
            places.append((start, file.size - start))
        if shape != self._shape or places != self._places:
            self._encoded = self._encode(list(flat), places)
        self._shape, self._places = list(shape), places
        return self._encoded

    def _plan(self, planner: DefaultSavePlanner) -> None:
        (plan,), self._metadata = planner.create_global_plan([planner.create_local_plan()])
        self._indices = {item.index.fqn: item.index for item in plan.items}
        self._frames, self._values = {}, {}

    def _encode(self, names: list[str], places: list[tuple[int, int]]) -> bytes:
        metadata = self._metadata
        metadata.storage_data = {
            self._indices[name]: _StorageInfo(DATA, start, length)
            for name, (start, length) in zip(names, places, strict=True)
        }
        metadata.storage_meta, metadata.version = StorageMeta(), CURRENT_DCP_VERSION
        return pickle.dumps(metadata)

    def _write_tensor(self, file: File, value: Tensor) -> None:
        key = _signature(value)
        if key not in self._frames:
            self._frames[key] = _frame(value)
        frame = self._frames[key]
        if frame is None:
            file.write(_saved(value))
            return
        head, tail = frame
        file.write(head)
        file.write(_bytes(value))
        file.write(tail)

    def _pickled(self, name: str, value: object) -> bytes:
        # Compare the text, because 1, 1.0 and True are equal.
        text = repr(value)
        known = self._values.get(name)
        if known is None or known[0] != text:
            known = self._values[name] = (text, _saved(value))
        return known[1]


def _signature(value: object) -> object:
    return (value.dtype, value.shape, value.stride()) if isinstance(value, Tensor) else None


def _saved(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _bytes(value: Tensor) -> memoryview:
    """Return the memory of a tensor that uses all of its storage."""
    whole = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
    return whole.numpy().data


def _frame(value: Tensor) -> Frame | None:
    """Return what ``torch.save`` writes before and after the tensor's bytes; None if these are not contiguous."""
    saved, content = _saved(value), _bytes(value)
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        records = [each for each in archive.infolist() if each.filename.endswith("/data/0")]
    if len(records) != 1 or not len(content):
        return None
    header = records[0].header_offset
    lengths = saved[header:][_LENGTHS]
    start = header + _LOCAL_HEADER + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    if saved[start : start + len(content)] != content:
        return None
    return saved[:start], saved[start + len(content) :]
