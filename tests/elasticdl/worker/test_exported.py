"""A model that was exported is read to the bit, and is there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from elasticdl.embedding_init import Table
from elasticdl.errors import DamagedData, InputError, MissingData
from elasticdl.worker import exported
from elasticdl.worker.exported import Exported, TableRows
from elasticdl.worker.places import Folder


def example(value: float = 1.0) -> Exported:
    rows = TableRows(Table("user", 2, seed=7), torch.tensor([3, 9]), torch.tensor([[value, 2.0], [3.0, 4.0]]))
    return Exported("m.custom_model", "hidden=3", 120, {"weight": torch.full((2, 3), value)}, {"user": rows})


def equal(one: Exported, other: Exported) -> bool:
    return (
        (one.model_def, one.model_params, one.version) == (other.model_def, other.model_params, other.version)
        and one.state.keys() == other.state.keys()
        and all(torch.equal(one.state[name], other.state[name]) for name in one.state)
        and one.tables.keys() == other.tables.keys()
        and all(
            mine.table == other.tables[name].table
            and torch.equal(mine.ids, other.tables[name].ids)
            and torch.equal(mine.rows, other.tables[name].rows)
            for name, mine in one.tables.items()
        )
    )


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    exported.write(example(), str(tmp_path / "model"))
    assert equal(exported.read(str(tmp_path / "model")), example())


def test_another_export_replaces_the_model_and_leaves_no_old_file(tmp_path: Path) -> None:
    exported.write(example(1), str(tmp_path))
    exported.write(example(2), str(tmp_path))
    exported.write(example(2), str(tmp_path))
    assert equal(exported.read(str(tmp_path)), example(2))
    assert len(list(tmp_path.iterdir())) == 3


def test_an_export_that_is_interrupted_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported.write(example(1), str(tmp_path))
    put = Folder.put

    def fails_at_the_manifest(self: Folder, name: str, data: bytes) -> None:
        if name == exported.MANIFEST:
            raise KeyboardInterrupt
        put(self, name, data)

    monkeypatch.setattr(Folder, "put", fails_at_the_manifest)
    with pytest.raises(KeyboardInterrupt):
        exported.write(example(2), str(tmp_path))
    assert equal(exported.read(str(tmp_path)), example(1))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"model\.json"):
        exported.read(str(tmp_path / "nothing"))
    assert not exported.is_exported(str(tmp_path / "nothing"))


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    exported.write(example(), str(tmp_path))
    (file,) = tmp_path.glob("state-*.pt")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedData, match=file.name):
        exported.read(str(tmp_path))


def test_a_model_of_a_later_version_is_refused(tmp_path: Path) -> None:
    exported.write(example(), str(tmp_path))
    manifest = tmp_path / exported.MANIFEST
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(InputError, match="version 2"):
        exported.read(str(tmp_path))


def test_a_model_goes_to_s3_and_comes_back(s3: Any) -> None:
    exported.write(example(1), "s3://there/models/mnist")
    exported.write(example(2), "s3://there/models/mnist")
    assert exported.is_exported("s3://there/models/mnist")
    assert equal(exported.read("s3://there/models/mnist"), example(2))
    assert len(s3.list_objects_v2(Bucket="there")["Contents"]) == 3
