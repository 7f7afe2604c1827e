"""Checkpoints of a model by version: each server writes its part, the master makes it count.

    saved = save_part("/data/checkpoints/mnist", 200, (0, 2), part, frozen)       # each server
    commit("/data/checkpoints/mnist", 200, [saved, …], run="mnist/1")              # the master, when all have answered
    prune("/data/checkpoints/mnist", keep=3, run="mnist/1")
    found = newest("/data/checkpoints/mnist", say=log)                             # a server that begins
    load_part(found, (0, 3))
    load_model("/data/checkpoints/mnist").dense                                    # export, evaluation, prediction

    version-000000000200/
        part-00000-of-00002-5f0c8a1e.safetensors
        part-00001-of-00002-93ab77d0.safetensors
        manifest.json                          version, run, and file, size and SHA-256 of each part; written last

A checkpoint without a manifest doesn't exist; one with a part that is missing, cut off or altered is named and left out
in favour of an older one. Parts are in the format safetensors (see `format`). Any number of servers can be restored:
each takes from all parts what it holds, by name and by id.

What isn't in a checkpoint: gradients that wait for others (--grads_to_wait), and snapshots.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import torch

from elasticdl.data.storage import STORE
from elasticdl.embedding_init import Table
from elasticdl.errors import DataError, MissingData
from elasticdl.ps.errors import BadCheckpoint, PushRefused
from elasticdl.ps.format import Reader, write
from elasticdl.ps.model.part import Contents, Frozen, Part
from elasticdl.ps.part_file import contents, entries, with_new_state
from tidewater.elastic.storage.store import joined

MANIFEST = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"version-(\d{12})")


@dataclass(frozen=True)
class Saved:
    """A part that a server has written."""

    file: str
    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True)
class Found:
    """A checkpoint with a manifest."""

    address: str
    """Of its folder."""
    version: int
    run: str
    """Job and run that wrote it."""
    parts: tuple[Saved, ...]


@dataclass(frozen=True)
class TableRows:
    """The rows of an embedding table that are stored; others are as `initial_rows` gives them."""

    table: Table
    ids: torch.Tensor
    """int64, (n,), ascending."""
    rows: torch.Tensor
    """float32, (n, dim)."""

    @staticmethod
    def ordered(table: Table, ids: torch.Tensor, rows: torch.Tensor) -> TableRows:
        """Return rows in the order of their ids."""
        order = torch.argsort(ids)
        return TableRows(table, ids[order], rows[order])


@dataclass(frozen=True)
class Model:
    """A whole model, without the optimizer's state."""

    version: int
    dense: Mapping[str, torch.Tensor]
    """Dense parameters and buffers by name."""
    tables: Mapping[str, TableRows]


def load_model(directory: str, *, say: Callable[[str], None] = print) -> Model:
    """Return the model of the newest checkpoint that is whole.

    Args:
        directory: of a job's checkpoints, or one checkpoint's folder; a path or `s3://bucket/prefix`.
        say: receives a message for each checkpoint that is left out, with the reason.

    Raises:
        BadCheckpoint: there is none.
    """
    found = needed(directory, say=say)
    model = _load(found, (0, 1), state=False)
    rows = {name: TableRows.ordered(each.table, each.ids, each.rows) for name, each in model.stored.items()}
    return Model(found.version, {**model.dense, **model.buffers}, rows)


def save_part(directory: str, version: int, place: tuple[int, int], part: Part, frozen: Frozen) -> Saved:
    """Write a server's part of a checkpoint; it counts when the master commits it."""
    file = part_name(*place)
    tensors, texts = entries(part, frozen)
    address = joined(directory, name_of(version), file)
    return Saved(file, *STORE.written(address, lambda stream: write(stream, tensors, texts)))


def load_part(found: Found, place: tuple[int, int]) -> Contents:
    """Return what a server, of so many, begins with when it goes on from a checkpoint."""
    return _load(found, place, state=True)


def load_values(found: Found, place: tuple[int, int], fresh: Contents) -> Contents:
    """Return a new model with the values of a checkpoint; the optimizer and its version are the new model's.

    Raises:
        PushRefused: the checkpoint is of another model; says which parameter differs.
    """
    loaded = _load(found, place, state=False)
    for difference in _differences(loaded, fresh):
        raise PushRefused(
            f"the checkpoint {found.address} is of another model: {difference}",
            "Name a checkpoint of this model in --checkpoint_dir_for_init.",
        )
    stored = {
        name: with_new_state(replace(loaded.stored[name], table=table), fresh.optimizer)
        for name, table in fresh.tables.items()
    }
    dense = {name: loaded.dense[name] for name in fresh.dense}
    return replace(fresh, dense=dense, buffers=loaded.buffers, stored=stored)


def _differences(loaded: Contents, fresh: Contents) -> Iterator[str]:
    """Yield what a checkpoint and a new model don't have in common."""
    held = {**loaded.dense, **loaded.buffers}
    ours = {**fresh.dense, **fresh.buffers}
    for name, value in ours.items():
        there = held.get(name)
        if there is None:
            yield f"it has no {name}"
        elif (there.shape, there.dtype) != (value.shape, value.dtype):
            yield (
                f"{name} has shape {list(there.shape)} ({there.dtype}) in the checkpoint, and {list(value.shape)} "
                f"({value.dtype}) in the model"
            )
    if other := sorted(set(held) - set(ours)):
        yield f"the model has no {', '.join(other[:5])}"
    for name, table in fresh.tables.items():
        theirs = loaded.stored.get(name)
        if theirs is None or theirs.table.dim != table.dim:
            was = "isn't there" if theirs is None else f"has dim {theirs.table.dim}"
            yield f"embedding table {name!r} with dim {table.dim} {was}"


def _load(found: Found, place: tuple[int, int], *, state: bool) -> Contents:
    with ExitStack() as stack:
        addresses = [joined(found.address, part.file) for part in found.parts]
        readers = [Reader(stack.enter_context(STORE.opened(address))) for address in addresses]
        return contents(readers, place, version=found.version, state=state)


def name_of(version: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"version-{version:012d}"


def part_name(index: int, servers: int) -> str:
    """Return a new name for a server's part: one that is written again must not replace one that counts."""
    return f"part-{index:05d}-of-{servers:05d}-{secrets.token_hex(4)}.safetensors"


def commit(directory: str, version: int, parts: Sequence[Saved], run: str = "") -> None:
    """Make a checkpoint of the parts that all servers have written: from now on it counts."""
    manifest = {"format": FORMAT, "version": version, "run": run, "parts": [asdict(part) for part in parts]}
    data = json.dumps(manifest, indent=1).encode()
    STORE.written(joined(directory, name_of(version), MANIFEST), lambda file: file.write(data))


def check_written(directory: str, version: int, parts: Sequence[Saved]) -> None:
    """Raise BadCheckpoint if a part isn't there: a server may have written it into a folder of its own container."""
    folder = joined(directory, name_of(version))
    for part in parts:
        try:
            with STORE.opened(joined(folder, part.file)):  # by its name: a list may be one that the node has cached
                pass
        except MissingData as error:
            raise BadCheckpoint(
                f"{folder} has no {part.file}, which a parameter server has written: it is another folder there",
                "Name a folder in --checkpoint_dir that master and servers share: on a --volume, or s3://.",
            ) from error


def prune(directory: str, keep: int, run: str) -> list[str]:
    """Remove all but the newest checkpoints of a run, and what is left of older ones that were never finished.

    Args:
        directory: of the job's checkpoints.
        keep: how many; 0: all.
        run: checkpoints of other runs aren't counted, and stay.

    Returns:
        The names of those that are removed.
    """
    folders = _folders(directory)
    complete = {name for name, files in folders.items() if MANIFEST in files}
    newest_first = (name for name in sorted(complete, reverse=True) if _run_of(joined(directory, name)) == run)
    own = list(islice(newest_first, None if keep else 1))
    gone = own[keep:] if keep else []
    # One without a manifest may be under way if it is newer than the newest that counts.
    gone += [name for name in folders if name not in complete and own and name < own[0]]
    for name in gone:
        STORE.removed(joined(directory, name), MANIFEST)
    return sorted(gone)


def check_unused(directory: str, run: str) -> None:
    """Raise BadCheckpoint if a folder for a run's checkpoints has some of another run.

    Both would have checkpoints of the same versions: one would replace those of the other.
    """
    for address in _addresses(directory):
        if (other := _run_of(address)) != run:
            raise BadCheckpoint(
                f"--checkpoint_dir={directory} has checkpoints of another run: {address} is of {other or 'none'}",
                "Name another folder. To begin with that checkpoint, name its folder in --checkpoint_dir_for_init.",
            )


def newest(directory: str, *, say: Callable[[str], None] = print, run: str | None = None) -> Found | None:
    """Return the newest checkpoint that is whole; None if there is none.

    Args:
        directory: of the job's checkpoints, or one checkpoint's folder.
        say: receives a message for each checkpoint that is left out, with the reason.
        run: only checkpoints of this run count; None: of any.
    """
    for address in _addresses(directory):
        try:
            found = _manifest(address)
            if run is not None and found.run != run:
                say(f"checkpoint {address} is left out: it is of {found.run!r}, and this is {run!r}")
                continue
            _verify(found)
        except DataError as error:
            say(f"checkpoint {address} is left out: {error.message}")
        except BadCheckpoint as error:
            say(f"checkpoint {address} is left out: {error.message}")
        else:
            return found
    return None


def needed(directory: str, *, say: Callable[[str], None] = print) -> Found:
    """Return the newest checkpoint that is whole; raise BadCheckpoint if there is none."""
    reasons: list[str] = []

    def told(text: str) -> None:
        reasons.append(text)
        say(text)

    found = newest(directory, say=told)
    if found is None:
        why = "; ".join(reasons) or f"no {MANIFEST} is there"
        raise BadCheckpoint(f"{directory} has no checkpoint that is whole ({why})", "Name a folder that has one.")
    return found


def _addresses(directory: str) -> Iterator[str]:
    files = STORE.sizes(directory)
    if MANIFEST in files:
        yield directory
        return
    names = {path.partition("/")[0] for path in files if path.endswith(f"/{MANIFEST}")}
    for name in sorted((name for name in names if _NAME.fullmatch(name)), reverse=True):
        yield joined(directory, name)


def _folders(directory: str) -> dict[str, set[str]]:
    folders: dict[str, set[str]] = {}
    for path in STORE.sizes(directory):
        name, _, file = path.partition("/")
        if _NAME.fullmatch(name):
            folders.setdefault(name, set()).add(file)
    return folders


def _run_of(address: str) -> str:
    """Return which run has written a checkpoint; empty if its manifest can't be read."""
    try:
        return _manifest(address).run
    except (BadCheckpoint, DataError):
        return ""


def _manifest(address: str) -> Found:
    data = STORE.read(joined(address, MANIFEST))
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields["format"] != FORMAT:
            raise BadCheckpoint(
                f"{MANIFEST} has format {fields['format']!r}, and this program knows {FORMAT}", "Use the other version."
            )
        parts = tuple(Saved(str(each["file"]), int(each["size"]), str(each["sha256"])) for each in fields["parts"])
        return Found(address, int(fields["version"]), str(fields["run"]), parts)
    except (ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"{MANIFEST} is damaged ({error!r})", "Use an older checkpoint.") from error


def _verify(found: Found) -> None:
    """Raise BadCheckpoint, with the file's name, unless every part is as it was written."""
    there = STORE.sizes(found.address)
    for part in found.parts:
        if part.file not in there:
            raise BadCheckpoint(f"{part.file} is missing", "Use an older checkpoint.")
        if there[part.file] != part.size:
            raise BadCheckpoint(
                f"{part.file} has {there[part.file]} bytes instead of {part.size}", "Use an older checkpoint."
            )
    for part in found.parts:
        digest = hashlib.sha256()
        with STORE.opened(joined(found.address, part.file)) as blob:
            for piece in blob.stream():
                digest.update(piece)
        if digest.hexdigest() != part.sha256:
            raise BadCheckpoint(f"{part.file} was altered: its SHA-256 differs", "Use an older checkpoint.")
