"""What a server's part of a checkpoint holds: from the model to tensors by name, and back at any number of servers.

| tensor | what |
|---|---|
| `dense:NAME` | a dense parameter |
| `buffer:NAME` | a buffer |
| `state:KEY:NAME` | the optimizer's state of a dense parameter, by torch's key |
| `ids:TABLE`, `rows:TABLE` | ids and values of the rows that are stored |
| `rows.COLUMN:TABLE` | the optimizer's state of these rows |

Texts of the header: `optimizer`, `tables` (with the steps of each) and `counted`, all JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import torch

from elasticdl.embedding_init import Table
from elasticdl.ps.errors import BadCheckpoint
from elasticdl.ps.format import Entry, Reader, bytes_of
from elasticdl.ps.model.part import Contents, Frozen, Part, StoredTable
from elasticdl.ps.model.row_updates import columns
from elasticdl.ps.model.rows import RowSnapshot, RowStore
from elasticdl.ps.placement import server_of, split
from elasticdl.zoo.optimizers import Optimizer

ROWS_AT_A_TIME = 65536
_MODEL = "a checkpoint's parts must be of one model"


def entries(part: Part, frozen: Frozen) -> tuple[list[Entry], dict[str, str]]:
    """Return the tensors and texts of a part. Rows are read when they are written, a piece at a time."""
    buffers = part.dense.buffers
    found = [
        Entry.of_message(f"{'buffer' if name in buffers else 'dense'}:{name}", message)
        for name, message in frozen.view.dense.items()
    ]
    found += [Entry.of(f"state:{key}:{name}", value) for (name, key), value in frozen.dense_state.items()]
    for name, snapshot in frozen.view.rows.items():
        found += _rows(part.stores[name], snapshot)
    tables = {name: {"table": table.to_json(), "steps": frozen.steps[name]} for name, table in part.tables.items()}
    texts = {"optimizer": part.optimizer.to_json(), "tables": json.dumps(tables), "counted": frozen.counted}
    return found, texts


def contents(readers: Sequence[Reader], place: tuple[int, int], *, version: int, state: bool = True) -> Contents:
    """Return what a server holds of a checkpoint.

    Args:
        readers: all parts, in the order of their servers.
        place: index of the server, and the number of servers, which may differ from the number of parts.
        version: of the checkpoint.
        state: whether the optimizer's state is read, too.
    """
    index, servers = place
    try:
        optimizer = Optimizer.from_json(readers[0].texts["optimizer"])
        described: dict[str, dict[str, str]] = json.loads(readers[0].texts["tables"])
        tables = {name: Table.from_json(each["table"]) for name, each in described.items()}
        steps = {name: max(json.loads(each.texts["tables"])[name]["steps"] for each in readers) for name in tables}
        parts = columns(optimizer) if state else ()
        return Contents(
            dict(_mine(readers, "dense:", place)),
            tables,
            optimizer,
            buffers=dict(_mine(readers, "buffer:", place)),
            dense_state=_state(readers, place) if state else {},
            stored={
                name: StoredTable(table, *_stored(readers, table, place, [each for each, _ in parts]), steps[name])
                for name, table in tables.items()
            },
            version=version,
            # Which gradients a server has counted says nothing about servers that hold other rows.
            counted=readers[index].texts["counted"] if len(readers) == servers else "[]",
        )
    except (KeyError, ValueError, TypeError) as error:
        raise BadCheckpoint(f"a part lacks what a checkpoint holds ({error!r})", _MODEL) from error


def with_new_state(stored: StoredTable, optimizer: Optimizer) -> StoredTable:
    """Return rows without state as an optimizer begins with them."""
    shape = (len(stored.ids), stored.table.dim)
    state = [torch.full(shape, first) for _, first in columns(optimizer)]
    return StoredTable(stored.table, stored.ids, torch.cat([stored.rows, *state], dim=1))


def _rows(store: RowStore, snapshot: RowSnapshot) -> Iterator[Entry]:
    dim, name = store.table.dim, store.table.name
    yield Entry.of(f"ids:{name}", store.ids(snapshot))
    for number, column in enumerate(["rows", *(f"rows.{each}" for each, _ in store.columns)]):
        chunks = _chunks(store, snapshot, slice(number * dim, (number + 1) * dim))
        yield Entry(f"{column}:{name}", "float32", (snapshot.count, dim), chunks)


def _chunks(store: RowStore, snapshot: RowSnapshot, wanted: slice) -> Iterator[bytes]:
    for start in range(0, snapshot.count, ROWS_AT_A_TIME):
        rows = store.slice(snapshot, start, min(start + ROWS_AT_A_TIME, snapshot.count))
        yield bytes_of(rows[:, wanted])


def _mine(readers: Sequence[Reader], prefix: str, place: tuple[int, int]) -> Iterator[tuple[str, torch.Tensor]]:
    for reader in readers:
        for each in reader.names(prefix):
            name = each.removeprefix(prefix)
            if server_of(name, place[1]) == place[0]:
                yield name, reader.tensor(each)


def _state(readers: Sequence[Reader], place: tuple[int, int]) -> Mapping[tuple[str, str], torch.Tensor]:
    found = {}
    for reader in readers:
        for each in reader.names("state:"):
            _, key, name = each.split(":", 2)
            if server_of(name, place[1]) == place[0]:
                found[name, key] = reader.tensor(each)
    return found


def _stored(
    readers: Sequence[Reader], table: Table, place: tuple[int, int], state: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this server's ids and rows of a table, with their state."""
    index, servers = place
    stored = [reader.tensor(f"ids:{table.name}") for reader in readers]
    owned = [split(ids, servers)[index] for ids in stored]
    ids = torch.cat([ids[mine] for ids, mine in zip(stored, owned, strict=True)])
    names = ["rows", *(f"rows.{each}" for each in state)]
    rows = torch.empty(len(ids), table.dim * len(names))
    begin = 0
    for reader, mine in zip(readers, owned, strict=True):
        for number, name in enumerate(names):
            target = rows[begin : begin + len(mine), number * table.dim : (number + 1) * table.dim]
            _fill(target, reader, f"{name}:{table.name}", mine)
        begin += len(mine)
    return ids, rows


def _fill(target: torch.Tensor, reader: Reader, name: str, mine: torch.Tensor) -> None:
    """Copy rows of a tensor of the file, at ascending positions, a piece at a time."""
    count = reader.rows(name)
    for start in range(0, count, ROWS_AT_A_TIME):
        end = min(start + ROWS_AT_A_TIME, count)
        first, last = torch.searchsorted(mine, torch.tensor([start, end])).tolist()
        if last > first:
            target[first:last] = reader.tensor(name, start, end)[mine[first:last] - start]
