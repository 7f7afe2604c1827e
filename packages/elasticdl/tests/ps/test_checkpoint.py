"""A checkpoint is whole or it is left out by name; it can be restored at any number of servers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from elasticdl.data.storage import STORE
from elasticdl.embedding_init import Table
from elasticdl.ps.checkpoint import (
    MANIFEST,
    Saved,
    check_unused,
    commit,
    load_model,
    load_part,
    load_values,
    name_of,
    newest,
    prune,
    save_part,
)
from elasticdl.ps.errors import BadCheckpoint, PushRefused
from elasticdl.ps.format import Reader
from elasticdl.ps.model.deduplication import Minibatch
from elasticdl.ps.model.gradients import Gradient
from elasticdl.ps.model.part import Contents, Part
from elasticdl.ps.model.policy import Policy
from elasticdl.ps.placement import server_of, split
from elasticdl.rpc.tensors import decode
from elasticdl.zoo.optimizers import SGD, Adagrad, Adam, Optimizer

from tidewater.elastic.storage import s3
from tidewater.elastic.storage.store import joined

TABLE = Table("item", 3, seed=1)
SHAPES = {f"layer.{index}.weight": (index + 1, 2) for index in range(9)} | {"scale": ()}
IDS = torch.arange(40)


class Cluster:
    """Parts of a model without any network."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts

    @staticmethod
    def new(count: int, optimizer: Optimizer) -> Cluster:
        dense = {name: torch.full(shape, 1.0) for name, shape in SHAPES.items()}
        buffers = {"running_mean": torch.zeros(4), "batches": torch.tensor(0)}
        return Cluster(
            [
                Part(
                    Contents(mine(dense, index, count), {"item": TABLE}, optimizer, mine(buffers, index, count)),
                    Policy(),
                )
                for index in range(count)
            ]
        )

    @staticmethod
    def of(directory: str, count: int) -> Cluster:
        found = newest(directory, say=print)
        assert found
        return Cluster([Part(load_part(found, (index, count)), Policy()) for index in range(count)])

    def train(self, first: int, last: int) -> Cluster:
        count = len(self.parts)
        for number in range(first, last):
            generator = torch.Generator().manual_seed(number)
            dense = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
            buffers = {"running_mean": torch.full((4,), float(number)), "batches": torch.tensor(number)}
            ids = torch.randperm(30, generator=generator)[:6]
            values = torch.randn(6, 3, generator=generator)
            for index, (part, rows) in enumerate(zip(self.parts, split(ids, count), strict=True)):
                pushed = Gradient(
                    Minibatch("w", "p", number),
                    part.view().version,
                    mine(dense, index, count),
                    {"item": (ids[rows], values[rows])},
                    mine(buffers, index, count),
                )
                assert part.push(pushed) == (True, number + 1)
        return self

    def save(self, directory: str, version: int, run: str = "") -> Cluster:
        saved = []
        for index, part in enumerate(self.parts):
            with part.frozen() as frozen:
                saved.append(save_part(directory, version, (index, len(self.parts)), part, frozen))
        commit(directory, version, saved, run)
        return self

    def values(self) -> dict[str, torch.Tensor]:
        found = {name: decode(value) for part in self.parts for name, value in part.view().dense.items()}
        found["rows"] = torch.empty(len(IDS), TABLE.dim)
        for part, rows in zip(self.parts, split(IDS, len(self.parts)), strict=True):
            found["rows"][rows] = part.rows("item", IDS[rows], part.view())
        return found


def mine(tensors: dict[str, torch.Tensor], index: int, count: int) -> dict[str, torch.Tensor]:
    return {name: value for name, value in tensors.items() if server_of(name, count) == index}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(params=["volume", "s3"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "volume":
        return str(tmp_path / "checkpoints")
    request.getfixturevalue("bucket")
    return f"s3://there/{tmp_path.name}"


@pytest.mark.parametrize(
    "optimizer",
    [SGD(lr=0.1), SGD(lr=0.1, momentum=0.9, dampening=0.1), Adagrad(lr=0.1), Adam(lr=0.1), Adam(lr=0.1, amsgrad=True)],
    ids=["sgd", "momentum", "adagrad", "adam", "amsgrad"],
)
def test_two_then_three_then_one_server_train_as_if_nothing_had_happened(tmp_path: Path, optimizer: Optimizer) -> None:
    undisturbed = Cluster.new(2, optimizer).train(0, 30)
    directory = str(tmp_path)
    Cluster.new(2, optimizer).train(0, 10).save(directory, 10)
    Cluster.of(directory, 3).train(10, 20).save(directory, 20)
    restored = Cluster.of(directory, 1).train(20, 30)
    assert same(restored.values(), undisturbed.values())


def test_a_model_is_read_whole_from_a_volume_and_from_s3(directory: str) -> None:
    cluster = Cluster.new(3, Adam(lr=0.1)).train(0, 5).save(directory, 5)
    model, values = load_model(directory), cluster.values()
    assert model.version == 5
    assert same({**model.dense, "rows": values["rows"]}, values)
    rows = model.tables["item"]
    assert rows.table == TABLE
    assert rows.ids.tolist() == sorted(rows.ids.tolist())
    assert torch.equal(rows.rows, values["rows"][rows.ids])
    assert load_model(joined(directory, name_of(5))).version == 5


def test_what_changes_while_a_part_is_written_is_not_in_it(tmp_path: Path) -> None:
    cluster = Cluster.new(1, Adam(lr=0.1)).train(0, 5)
    before = cluster.values()
    with cluster.parts[0].frozen() as frozen:
        cluster.train(5, 9)
        saved = save_part(str(tmp_path), 5, (0, 1), cluster.parts[0], frozen)
    commit(str(tmp_path), 5, [saved])
    assert same(Cluster.of(str(tmp_path), 1).values(), before)
    assert not cluster.parts[0].stores["item"]._snapshots


def test_a_restored_server_ignores_what_it_has_counted_before(tmp_path: Path) -> None:
    Cluster.new(2, SGD(lr=0.1)).train(0, 5).save(str(tmp_path), 5)
    restored = Cluster.of(str(tmp_path), 2)
    before = restored.values()
    for part in restored.parts:
        assert part.push(Gradient(Minibatch("w", "p", 4), 4, {})) == (True, 5)
    assert same(restored.values(), before)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGE: list[Any] = [
    pytest.param("part-00001", truncate, r"part-00001.* has \d+ bytes instead of", id="part-cut-off"),
    pytest.param("part-00001", alter, "part-00001.* was altered", id="part-altered"),
    pytest.param("part-00000", Path.unlink, "part-00000.* is missing", id="part-missing"),
    pytest.param("manifest", truncate, "manifest.json is damaged", id="manifest-cut-off"),
    pytest.param("manifest", lambda path: path.write_text('{"format": 99}'), "has format 99", id="format"),
]


@pytest.mark.parametrize(("file", "damage", "message"), DAMAGE)
def test_a_damaged_checkpoint_is_named_and_an_older_one_is_used(
    tmp_path: Path, file: str, damage: Callable[[Path], None], message: str
) -> None:
    cluster = Cluster.new(2, SGD(lr=0.1)).train(0, 3).save(str(tmp_path), 3).train(3, 6).save(str(tmp_path), 6)
    assert cluster
    (path,) = (tmp_path / name_of(6)).glob(f"{file}*")
    damage(path)
    said: list[str] = []
    found = newest(str(tmp_path), say=said.append)
    assert found
    assert found.version == 3
    (line,) = said
    assert re.search(message, line), line
    assert name_of(6) in line


def test_a_damaged_object_in_s3_is_named(directory: str) -> None:
    Cluster.new(1, SGD(lr=0.1)).save(directory, 3)
    (part,) = (name for name in STORE.sizes(directory) if "part" in name)
    if directory.startswith("s3://"):
        bucket, key = s3.split(joined(directory, part))
        s3.client().put_object(Bucket=bucket, Key=key, Body=b"short")
    else:
        Path(directory, part).write_bytes(b"short")
    with pytest.raises(BadCheckpoint, match="5 bytes instead of"):
        load_model(directory, say=lambda text: None)


def test_parts_without_a_manifest_are_no_checkpoint(tmp_path: Path) -> None:
    cluster = Cluster.new(1, SGD(lr=0.1))
    with cluster.parts[0].frozen() as frozen:
        save_part(str(tmp_path), 3, (0, 1), cluster.parts[0], frozen)
    assert newest(str(tmp_path)) is None
    with pytest.raises(BadCheckpoint, match=r"no manifest.json is there"):
        load_model(str(tmp_path))
    assert newest(str(tmp_path / "absent")) is None


def test_a_write_that_fails_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError("no space left")

    with pytest.raises(Exception, match="no space left"):
        STORE.written(str(tmp_path / "version" / "part"), fail)
    assert list((tmp_path / "version").iterdir()) == []


def test_a_version_that_is_saved_again_replaces_the_first_at_once(tmp_path: Path) -> None:
    cluster = Cluster.new(1, SGD(lr=0.1)).save(str(tmp_path), 3).train(0, 2)
    with cluster.parts[0].frozen() as frozen:
        saved = save_part(str(tmp_path), 3, (0, 1), cluster.parts[0], frozen)
    assert not same(Cluster.of(str(tmp_path), 1).values(), cluster.values())
    commit(str(tmp_path), 3, [saved])
    assert same(Cluster.of(str(tmp_path), 1).values(), cluster.values())


def test_only_a_run_s_own_checkpoints_count_for_its_servers(tmp_path: Path) -> None:
    Cluster.new(1, SGD(lr=0.1)).save(str(tmp_path), 3, "mnist/1").save(str(tmp_path), 6, "mnist/2")
    said: list[str] = []
    found = newest(str(tmp_path), run="mnist/1", say=said.append)
    assert found
    assert found.version == 3
    assert "'mnist/2'" in said[0]


def test_pruning_keeps_the_newest_and_those_that_are_under_way(directory: str) -> None:
    cluster = Cluster.new(1, SGD(lr=0.1))
    for version in (1, 3, 5):
        cluster.save(directory, version)
    for version in (4, 7):  # 4 was never finished, 7 may still be
        with cluster.parts[0].frozen() as frozen:
            save_part(directory, version, (0, 1), cluster.parts[0], frozen)
    assert prune(directory, 2, run="") == [name_of(1), name_of(4)]
    assert {name.partition("/")[0] for name in STORE.sizes(directory)} == {name_of(3), name_of(5), name_of(7)}
    assert prune(directory, 0, run="") == []
    assert prune(joined(directory, "absent"), 2, run="") == []


def test_pruning_neither_counts_nor_removes_the_checkpoints_of_another_run(directory: str) -> None:
    cluster = Cluster.new(1, SGD(lr=0.1))
    for version in (20, 40, 60):
        cluster.save(directory, version, "mnist/1")
    for version in (10, 30):
        cluster.save(directory, version, "mnist/2")
    assert prune(directory, 1, run="mnist/2") == [name_of(10)]
    assert {name.partition("/")[0] for name in STORE.sizes(directory)} == {name_of(each) for each in (20, 30, 40, 60)}


def test_a_folder_with_checkpoints_of_another_run_is_refused_by_name(directory: str) -> None:
    check_unused(directory, "mnist/2")
    cluster = Cluster.new(1, SGD(lr=0.1)).save(directory, 20, "mnist/2")
    check_unused(directory, "mnist/2")
    cluster.save(directory, 10, "mnist/1")
    with pytest.raises(BadCheckpoint, match=f"--checkpoint_dir={directory} .*{name_of(10)} is of mnist/1") as caught:
        check_unused(directory, "mnist/2")
    assert "another folder" in caught.value.remedy


def test_another_job_begins_with_the_values_and_a_new_optimizer(tmp_path: Path) -> None:
    trained = Cluster.new(2, Adam(lr=0.1)).train(0, 9).save(str(tmp_path), 9)
    found = newest(str(tmp_path))
    assert found
    fresh = Cluster.new(3, SGD(lr=0.1, momentum=0.9))
    begun = Cluster(
        [Part(load_values(found, (index, 3), contents(part)), Policy()) for index, part in enumerate(fresh.parts)]
    )
    assert same(begun.values(), trained.values())
    assert [part.view().version for part in begun.parts] == [0, 0, 0]
    begun.train(0, 2)


def contents(part: Part) -> Contents:
    return Contents(dict(part.dense.parameters), part.tables, part.optimizer, dict(part.dense.buffers))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda c: Contents({**c.dense, "new": torch.ones(2)}, c.tables, c.optimizer, c.buffers), "new", id="missing"
        ),
        pytest.param(lambda c: Contents({}, c.tables, c.optimizer, c.buffers), "has no layer.0.weight", id="left-over"),
        pytest.param(
            lambda c: Contents({**c.dense, "scale": torch.ones(2)}, c.tables, c.optimizer, c.buffers),
            r"scale has shape \[2\]|scale has shape \[\]",
            id="shape",
        ),
        pytest.param(
            lambda c: Contents(c.dense, {"item": Table("item", 8)}, c.optimizer, c.buffers),
            "'item' with dim 8 has dim 3",
            id="dim",
        ),
        pytest.param(
            lambda c: Contents(c.dense, {"user": Table("user", 3)}, c.optimizer, c.buffers),
            "'user' .* isn't there",
            id="table",
        ),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_by_name(
    tmp_path: Path, change: Callable[[Contents], Contents], message: str
) -> None:
    Cluster.new(2, SGD(lr=0.1)).save(str(tmp_path), 3)
    found = newest(str(tmp_path))
    assert found
    with pytest.raises(PushRefused, match=message) as caught:
        load_values(found, (0, 1), change(contents(Cluster.new(1, SGD(lr=0.1)).parts[0])))
    assert "server" not in str(caught.value)  # a job in one process has none
    assert "pushed" not in str(caught.value)


def test_a_part_is_a_file_of_the_format_safetensors(tmp_path: Path) -> None:
    Cluster.new(1, Adam(lr=0.1)).train(0, 2).save(str(tmp_path), 2)
    (path,) = (tmp_path / name_of(2)).glob("part-*")
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header["dense:layer.3.weight"]["dtype"] == "F32"
    assert header["dense:layer.3.weight"]["shape"] == [4, 2]
    offsets = sorted(entry["data_offsets"] for name, entry in header.items() if name != "__metadata__")
    assert [start for start, _ in offsets] == [0, *(end for _, end in offsets)][: len(offsets)]
    assert offsets[-1][1] == len(data) - 8 - length
    assert all(isinstance(text, str) for text in header["__metadata__"].values())


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 40, (9).to_bytes(8, "little") + b'{"a": 1} ', (2).to_bytes(8, "little") + b"[]"]
)
def test_a_file_that_is_none_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "part").write_bytes(data)
    with STORE.opened(str(tmp_path / "part")) as blob, pytest.raises(BadCheckpoint, match="part is damaged"):
        Reader(blob)


def test_a_manifest_can_not_name_a_file_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"")
    commit(str(tmp_path), 1, [Saved("../outside", 0, hashlib.sha256().hexdigest())])
    assert newest(str(tmp_path), say=lambda text: None) is None


def test_what_a_server_left_that_was_killed_while_it_wrote_is_removed(tmp_path: Path) -> None:
    (tmp_path / name_of(100)).mkdir()
    (tmp_path / name_of(100) / ".part-00000-of-00001-5f0c8a1e.safetensors.93ab77d0").write_bytes(b"half")
    commit(str(tmp_path), 200, [])
    assert prune(str(tmp_path), keep=1, run="") == [name_of(100)]
    assert [path.name for path in tmp_path.iterdir()] == [name_of(200)]


def test_a_checkpoint_that_somebody_else_removes_meanwhile_is_removed(tmp_path: Path) -> None:
    STORE.removed(str(tmp_path / name_of(100)), MANIFEST)
