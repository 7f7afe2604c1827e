"""The final model of a job, in one folder on a volume or in S3.

    write(model, Origin("mnist.custom_model", "channels=16"), buffers=("norm.running_mean",), address="/data/model")
    found = read("/data/model")
    found.origin.model_def, found.model.dense, found.model.tables

    model.json                         which function made the model, and where its values are; written last
    version-000000000120/              a checkpoint of one part, without the optimizer's state

So another job may begin with the folder, or evaluate it, by --checkpoint_dir_for_init. The values are in the format
safetensors, which can be read without this package. A reader sees the whole old model or the whole new one.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from elasticdl.data.storage import STORE
from elasticdl.errors import DamagedData, InputError, MissingData
from elasticdl.ps import checkpoint
from elasticdl.ps.checkpoint import Model
from elasticdl.ps.model.part import Contents, Part, StoredTable
from elasticdl.ps.model.policy import Policy
from elasticdl.zoo.optimizers import SGD
from tidewater.elastic.storage.store import joined

DESCRIPTION = "model.json"
_FORMAT = 1


@dataclass(frozen=True)
class Origin:
    """What made a model: flags of its job."""

    model_def: str
    model_params: str = ""


@dataclass(frozen=True)
class Exported:
    """A model that was read."""

    origin: Origin
    model: Model


def write(model: Model, origin: Origin, *, buffers: Collection[str], address: str) -> None:
    """Write a model to a folder; a model that is there is replaced.

    Args:
        model: its values.
        origin: what made it.
        buffers: which of the dense values are buffers.
        address: of the folder.
    """
    dense = {name: value for name, value in model.dense.items() if name not in buffers}
    kept = {name: value for name, value in model.dense.items() if name in buffers}
    stored = {name: StoredTable(rows.table, rows.ids, rows.rows) for name, rows in model.tables.items()}
    tables = {name: rows.table for name, rows in model.tables.items()}
    # An optimizer without state, so that none is written.
    part = Part(Contents(dense, tables, SGD(), kept, stored=stored, version=model.version), Policy())
    with part.frozen() as frozen:
        saved = checkpoint.save_part(address, model.version, (0, 1), part, frozen)
    checkpoint.commit(address, model.version, [saved])
    name = checkpoint.name_of(model.version)
    description = {"format": _FORMAT, "checkpoint": name, **asdict(origin)}
    text = json.dumps(description, indent=2, sort_keys=True) + "\n"
    STORE.written(joined(address, DESCRIPTION), lambda file: file.write(text.encode()))
    _remove_others(address, name)


def is_exported(address: str) -> bool:
    """Return whether a folder holds a model that `write` has written."""
    return DESCRIPTION in STORE.sizes(address)


def read(address: str) -> Exported:
    """Return the model in a folder.

    Raises:
        MissingData: there is none.
        BadCheckpoint: a file of it is cut off or altered; says which.
    """
    if not is_exported(address):
        raise MissingData(
            f"{address}: there is no exported model, since {DESCRIPTION} is missing",
            "Give the --output of a job that has ended.",
        )
    text = STORE.read(joined(address, DESCRIPTION))
    try:
        fields: dict[str, Any] = json.loads(text)
        if fields["format"] != _FORMAT:
            raise InputError(
                f"{address}/{DESCRIPTION} has format {fields['format']!r}, and this program knows {_FORMAT}",
                "Read it with the version of elasticdl that has written it.",
            )
        origin, name = Origin(fields["model_def"], fields["model_params"]), fields["checkpoint"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedData(f"{address}/{DESCRIPTION} can't be read ({error!r})", "Export the model again.") from error
    return Exported(origin, checkpoint.load_model(joined(address, name)))


def _remove_others(address: str, name: str) -> None:
    """Remove all checkpoints but one, newer ones too: a server takes the newest one."""
    for path in STORE.sizes(address):
        folder, _, rest = path.partition("/")
        if folder.startswith("version-") and folder != name and rest == checkpoint.MANIFEST:
            STORE.removed(joined(address, folder), checkpoint.MANIFEST)
