"""The final model of a job: weights, embedding tables and the name of the function that makes it, in one folder.

    write(Exported(spec.model_def, params, version, state, tables), "/data/mnist/model")
    exported = read("/data/mnist/model")
    model = load_model("/data/mnist/model", model_zoo="model_zoo")     # ready to predict

The folder, on a volume or in S3, has a manifest, `model.json`, and the files that it names. The manifest is written
last, and replaced as one: a reader sees the whole old model or the whole new one. The weights are a state dict as
`torch.save` writes it, so they can be read without this package.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from elasticdl.embedding_init import Table
from elasticdl.errors import DamagedData, InputError, MissingData
from elasticdl.worker.places import Place, place

MANIFEST = "model.json"
_VERSION = 1


@dataclass(frozen=True)
class TableRows:
    """An embedding table with the rows that exist; others have their initial value."""

    table: Table
    ids: torch.Tensor
    """int64, ascending."""
    rows: torch.Tensor
    """One row for each id."""


@dataclass(frozen=True)
class Exported:
    """A model as it is written and read."""

    model_def: str
    model_params: str
    version: int
    """Number of updates that the model has had."""
    state: Mapping[str, torch.Tensor]
    """The model's state dict, without the embedding tables."""
    tables: Mapping[str, TableRows] = field(default_factory=dict)


def write(exported: Exported, address: str) -> None:
    """Write a model to a folder; a model that is there is replaced."""
    target = place(address)
    names = {"state": _put(target, "state", dict(exported.state))}
    tables = {name: {"ids": each.ids, "rows": each.rows} for name, each in exported.tables.items()}
    names["tables"] = _put(target, "tables", tables)
    manifest = {
        "version": _VERSION,
        "model_def": exported.model_def,
        "model_params": exported.model_params,
        "step": exported.version,
        "tables": {name: each.table.to_json() for name, each in exported.tables.items()},
        "files": names,
    }
    target.put(MANIFEST, json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n")
    for name in target.names():
        if name.endswith(".pt") and name not in names.values():
            target.remove(name)


def is_exported(address: str) -> bool:
    """Return whether a folder holds a model that `write` has written."""
    return MANIFEST in place(address).names()


def read(address: str) -> Exported:
    """Return the model in a folder.

    Raises:
        MissingData: there is none.
        DamagedData: a file of it is cut off or altered.
    """
    source = place(address)
    if MANIFEST not in source.names():
        raise MissingData(
            f"{address}: there is no exported model: {MANIFEST} is missing", "give the --output of a job that has ended"
        )
    try:
        manifest: dict[str, Any] = json.loads(source.get(MANIFEST))
    except ValueError as error:
        raise DamagedData(f"{address}/{MANIFEST} is no JSON ({error})", "export the model again") from error
    if manifest.get("version") != _VERSION:
        raise InputError(
            f"{address}/{MANIFEST} has version {manifest.get('version')!r}, and this program knows {_VERSION}",
            "read it with the version of elasticdl that has written it",
        )
    rows = _get(source, manifest["files"]["tables"])
    return Exported(
        model_def=manifest["model_def"],
        model_params=manifest["model_params"],
        version=manifest["step"],
        state=_get(source, manifest["files"]["state"]),
        tables={
            name: TableRows(Table.from_json(text), rows[name]["ids"], rows[name]["rows"])
            for name, text in manifest["tables"].items()
        },
    )


def _put(target: Place, kind: str, content: Mapping[str, Any]) -> str:
    """Write a file; return its name, in which its checksum is."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    data = buffer.getvalue()
    name = f"{kind}-{hashlib.sha256(data).hexdigest()[:32]}.pt"
    target.put(name, data)
    return name


def _get(source: Place, name: str) -> Any:
    data = source.get(name)
    if hashlib.sha256(data).hexdigest()[:32] != name.rpartition("-")[2].removesuffix(".pt"):
        raise DamagedData(
            f"{source.address}/{name} does not have the checksum in its name", "copy it again, or export it again"
        )
    return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
