"""A model that was exported is read to the bit, and is there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from elasticdl.embedding_init import Table
from elasticdl.errors import DataError, InputError, MissingData
from elasticdl.ps import checkpoint
from elasticdl.ps.checkpoint import Model, TableRows
from elasticdl.worker import exported
from elasticdl.worker.exported import DESCRIPTION, Origin

ORIGIN = Origin("m.custom_model", "hidden=3")
BUFFERS = ("norm.num_batches_tracked",)


def example(value: float = 1.0, version: int = 120) -> Model:
    rows = TableRows(Table("user", 2, seed=7), torch.tensor([3, 9]), torch.tensor([[value, 2.0], [3.0, 4.0]]))
    dense = {"weight": torch.full((2, 3), float(value)), "norm.num_batches_tracked": torch.tensor(5)}
    return Model(version, dense, {"user": rows})


def write(model: Model, address: Path | str) -> None:
    exported.write(model, ORIGIN, buffers=BUFFERS, address=str(address))


def equal(one: Model, other: Model) -> bool:
    return (
        one.version == other.version
        and one.dense.keys() == other.dense.keys()
        and all(torch.equal(one.dense[name], other.dense[name]) for name in one.dense)
        and one.tables.keys() == other.tables.keys()
        and all(
            mine.table == other.tables[name].table
            and torch.equal(mine.ids, other.tables[name].ids)
            and torch.equal(mine.rows, other.tables[name].rows)
            for name, mine in one.tables.items()
        )
    )


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(example(), tmp_path / "model")
    found = exported.read(str(tmp_path / "model"))
    assert found.origin == ORIGIN
    assert equal(found.model, example())


def test_a_model_without_tables_is_read_as_it_was_written(tmp_path: Path) -> None:
    bare = Model(1, {"weight": torch.ones(2)}, {})
    exported.write(bare, ORIGIN, buffers=(), address=str(tmp_path))
    assert equal(exported.read(str(tmp_path)).model, bare)


@pytest.mark.parametrize("version", [7, 120, 500], ids=["lower", "the same", "higher"])
def test_another_export_replaces_the_model_whichever_version_it_has(tmp_path: Path, version: int) -> None:
    write(example(1), tmp_path)
    write(example(2, version), tmp_path)
    assert equal(exported.read(str(tmp_path)).model, example(2, version))
    assert len(list(tmp_path.glob("version-*"))) == 1


def test_servers_begin_with_an_exported_model_as_with_a_checkpoint(tmp_path: Path) -> None:
    write(example(1, 500), tmp_path)
    write(example(2), tmp_path)
    assert equal(checkpoint.load_model(str(tmp_path)), example(2))


def test_an_export_that_is_interrupted_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(example(1), tmp_path)

    def fails(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for moment in ("save_part", "commit"):
        with monkeypatch.context() as patched:
            patched.setattr(checkpoint, moment, fails)
            with pytest.raises(KeyboardInterrupt):
                write(example(2), tmp_path)
        assert equal(exported.read(str(tmp_path)).model, example(1))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"model\.json"):
        exported.read(str(tmp_path / "nothing"))


def test_a_model_of_a_later_format_is_refused(tmp_path: Path) -> None:
    write(example(), tmp_path)
    description = tmp_path / DESCRIPTION
    description.write_text(description.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(InputError, match="format 2"):
        exported.read(str(tmp_path))


def test_a_description_that_is_cut_off_is_named(tmp_path: Path) -> None:
    write(example(), tmp_path)
    description = tmp_path / DESCRIPTION
    description.write_text(description.read_text()[:-10])
    with pytest.raises(DataError, match=r"model\.json"):
        exported.read(str(tmp_path))


def test_a_model_goes_to_s3_and_comes_back(s3: Any) -> None:
    write(example(1, 500), "s3://there/models/mnist")
    write(example(2), "s3://there/models/mnist")
    assert equal(exported.read("s3://there/models/mnist").model, example(2))
    kept = [each["Key"] for each in s3.list_objects_v2(Bucket="there")["Contents"]]
    assert len(kept) == 3, kept
