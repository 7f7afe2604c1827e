"""Checkpoints in the format of ``torch.distributed.checkpoint``: writes to a place, reads from a directory.

    name, size = write(place.begin(120), history, snapshot.parts, layout, score)
    tree = read(folder)                      # RecordError unless it is complete

One process writes everything, without collectives, so a lost peer can't block it. ``torch.distributed.checkpoint.save``
and ``load`` are not used: for their log they read the names of the default process group, which the training thread may
be destroying at that moment. See ``layout`` for what is done instead.

Pickle is used as little as the format allows. Everything except tensors is read from JSON. Tensors are read with
``weights_only``. The format's own metadata is a pickle: its checksum is verified first, and only the classes that
metadata consists of can be unpickled.
"""

from __future__ import annotations

import json
import pickle
from enum import EnumType
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from tidewater.elastic import tree
from tidewater.elastic.checkpoint.files import Files
from tidewater.elastic.checkpoint.layout import DATA, METADATA, Layout
from tidewater.elastic.checkpoint.lineage import History
from tidewater.elastic.checkpoint.manifest import TREE, Manifest, Score
from tidewater.elastic.checkpoint.places import Upload
from tidewater.elastic.errors import RecordError
from tidewater.elastic.machine_errors import ran_out_of_memory

_KNOWN = {
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size",),
    "pathlib": ("PosixPath", "PurePosixPath"),
}


def write(upload: Upload, history: History, parts: tree.Parts, layout: Layout, score: Score | None) -> tuple[str, int]:
    """Write a checkpoint. Return its name in the place, and the total size of its files.

    Raise the errors of the place, or ValueError if two values in the state have the same name. Then the upload is
    aborted.
    """
    files = Files(upload)
    try:
        with files.create(DATA) as file:
            metadata = layout.write(file, parts.public)
        for name, data in ((METADATA, metadata), (TREE, json.dumps(parts.outline).encode())):
            with files.create(name) as file:
                file.write(data)
        name = upload.commit(Manifest(history, files.entries, score).encode())
    except BaseException:
        upload.abort()
        raise
    return name, sum(entry.size for entry in files.entries.values())


def read(folder: Path) -> Any:
    """Return the state in a checkpoint, on the CPU.

    Raise RecordError if it is damaged, OSError if it is unreadable, what torch raises if it does not fit in memory.
    """
    Manifest.of(folder).verify(folder)
    try:
        outline = json.loads((folder / TREE).read_bytes())
        return tree.join(outline, _read_tensors(folder, tree.names(outline)))
    except (ValueError, KeyError, TypeError, RuntimeError, AssertionError, pickle.UnpicklingError) as error:
        if ran_out_of_memory(error):
            raise
        raise RecordError(f"it can't be read: {error}") from error


def _read_tensors(folder: Path, names: list[str]) -> dict[str, torch.Tensor]:
    reader, planner = _Reader(folder), DefaultLoadPlanner(flatten_state_dict=False)
    metadata = reader.read_metadata()
    tensors = {name: _empty(metadata, name) for name in names}
    planner.set_up_planner(cast(dict[str, Any], tensors), metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, True)
    plans = planner.create_global_plan([reader.prepare_local_plan(planner.create_local_plan())])
    (plan,) = reader.prepare_global_plan(plans)
    reader.read_data(planner.finish_plan(plan), planner).wait()
    return tensors


def _empty(metadata: Metadata, name: str) -> torch.Tensor:
    stored = metadata.state_dict_metadata.get(name)
    if not isinstance(stored, TensorStorageMetadata):
        raise RecordError(f"it has no tensor called {name}")
    return torch.empty(stored.size, dtype=stored.properties.dtype)


class _Reader(FileSystemReader):
    """Unpickles metadata, and nothing else."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return a class that metadata consists of. Raise pickle.UnpicklingError for any other one."""
        with Path(self.path, METADATA).open("rb") as file:
            found = _Unpickler(file).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError(f"its metadata is a {type(found).__name__}")
        return found


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("pathlib"):
            module = "pathlib"  # its module depends on the version of Python
        if name in _KNOWN.get(module, ()) or (module == "torch" and isinstance(getattr(torch, name, 0), torch.dtype)):
            return super().find_class(module, name)
        if (module, name) == ("builtins", "getattr"):
            return _member
        raise pickle.UnpicklingError(f"its metadata uses {module}.{name}, which is not allowed")


def _member(kind: Any, name: str) -> Any:
    """Replace ``getattr``, with which Python 3.11.0 to 3.11.3 pickle members of an enumeration."""
    if isinstance(kind, EnumType) and name in kind.__members__:
        return kind[name]
    raise pickle.UnpicklingError(f"its metadata uses {name!r} of {kind!r}, which is not allowed")
