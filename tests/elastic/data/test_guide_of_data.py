"""The recipes of the guide for data work as they are written."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.pages import blocks
from tidewater.elastic.data.loader import Loader, LoaderSettings, Place
from tidewater.elastic.data.sampler import Cursor

TOTAL = 23
PER_SHARD = 9


def recipe(beginning: str) -> dict[str, Any]:
    """Return the names that a block of the guide defines."""
    (example,) = [block for block in blocks("docs/training/data.md", "python") if beginning in block]
    names: dict[str, Any] = {"torch": torch}
    exec(example, names)
    return names


def batches(dataset: Any, collate: Any, *, workers: int = 0, ranks: int = 1) -> Iterator[list[Any]]:
    """Yield the micro-batches, of at most 2 samples, of all ranks in each step of an epoch."""
    for rank in range(ranks):
        settings = LoaderSettings(seed=3, workers=workers)
        with closing(Loader(dataset, settings, collate=collate, device=torch.device("cpu"))) as loader:
            loader.start(Place(Cursor(), rank, ranks, batch_size=7, epochs=1, micro_batch=2))
            for _ in range(-(-TOTAL // 7)):
                yield [micro.batch for micro in loader.next().micro if micro.weight]


def write(path: Path, numbers: range, *, kinds: tuple[str, ...] = ("txt", "seg.cls")) -> None:
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            for kind in kinds:
                content = f"{kind} {number}".encode() * (1 + number)
                member = tarfile.TarInfo(f"images/v1.0/{number:04d}.{kind}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def decoded(files: dict[str, bytes]) -> int:
    number = int(files["txt"].split(b"txt ")[-1])
    assert files == {kind: f"{kind} {number}".encode() * (1 + number) for kind in ("txt", "seg.cls")}
    return number


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Return three shards."""
    paths = [tmp_path / f"train-{first:03d}.tar" for first in range(0, TOTAL, PER_SHARD)]
    for place, path in enumerate(paths):
        write(path, range(place * PER_SHARD, min(TOTAL, (place + 1) * PER_SHARD)))
    return paths


@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_of_the_shards_is_used_once(shards: list[Path], workers: int) -> None:
    dataset = recipe("class Shards")["Shards"](shards, decoded)
    assert len(dataset) == TOTAL
    found = [batch for step in batches(dataset, list, workers=workers, ranks=2) for batch in step]
    assert Counter(number for batch in found for number in batch) == dict.fromkeys(range(TOTAL), 1)


def test_a_shard_is_listed_once_and_again_if_its_size_has_changed(shards: list[Path]) -> None:
    names = recipe("class Shards")
    listed: list[Path] = []

    class Counting:
        TarInfo = tarfile.TarInfo

        @staticmethod
        def open(path: Path, mode: str) -> tarfile.TarFile:
            listed.append(path)
            return tarfile.open(path, "r:")

    names["tarfile"] = Counting
    first = names["Shards"](shards, decoded)
    again = names["Shards"](reversed(shards), decoded)
    assert [list(first), listed] == [list(again), shards]
    write(shards[0], range(20))
    assert len(names["Shards"](shards, decoded)) == TOTAL - PER_SHARD + 20
    assert sorted(path.suffix for path in shards[0].parent.iterdir()) == [".index"] * 3 + [".tar"] * 3


def test_an_incomplete_shard_is_refused(shards: list[Path]) -> None:
    shards_of = recipe("class Shards")["Shards"]
    content = shards[1].read_bytes()
    for blocks_left in range(2, len(content) // 512 - 20):
        shards[1].write_bytes(content[: 512 * blocks_left])
        with pytest.raises((tarfile.ReadError, ValueError)):
            shards_of(shards, decoded)
    write(shards[1], range(3), kinds=("txt",))
    with tarfile.open(shards[1], "a") as tar:
        tar.addfile(tarfile.TarInfo("images/v1.0/0001.seg.cls"))
    with pytest.raises(ValueError, match="lacks a file"):
        shards_of(shards, decoded)


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": [1 + (index * word) % 15 for word in range(2, 4 + index % 9)]}


@pytest.mark.parametrize("ranks", [1, 3])
def test_padded_text_has_the_loss_of_one_batch_at_any_number_of_ranks_and_micro_batches(ranks: int) -> None:
    names = recipe("class Padded")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(16, 4), nn.Linear(4, 16)).double()
    padded, rows = names["Padded"](), Rows()
    expected, number = names["loss"](model, padded([rows[index] for index in range(TOTAL)]))
    steps = [batch for step in batches(rows, padded, ranks=ranks) for batch in step]
    parts = [names["loss"](model, batch) for batch in steps]
    assert len({batch.shape[1] for batch in steps}) > 3
    assert sum(int(weight) for _, weight in parts) == int(number)
    assert torch.isclose(torch.stack([total for total, _ in parts]).sum(), expected)
