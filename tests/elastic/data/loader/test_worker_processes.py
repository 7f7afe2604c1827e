"""Datasets and batches as people write them work in processes that prepare data, or are refused with the remedy."""

from __future__ import annotations

import dataclasses
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from tidewater.elastic.data.loader import Loader, LoaderSettings, Place
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import ConfigError

TOTAL, SIZE = 40, 16


class Records(Dataset[Any]):
    """Keeps its file open from the beginning, as a library that opens it does."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"".join(bytes([number]) * SIZE for number in range(TOTAL)))
        self.file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index * SIZE)
        return index, torch.frombuffer(bytearray(self.file.read(SIZE)), dtype=torch.uint8)


class Handle(Records):
    """Has an attribute that can't be pickled, as the handles of h5py and lmdb can't."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lock = threading.Lock()


class Members(Dataset[Any]):
    """Keeps a tar archive open."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path, "w") as tar:
            for number in range(TOTAL):
                member = path.with_name(str(number))
                member.write_bytes(bytes([number]) * SIZE)
                tar.add(member, str(number))
        self.tar = tarfile.open(path)  # noqa: SIM115
        self.members = self.tar.getmembers()
        self.file: Any = self.tar.fileobj

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> Any:
        content: Any = self.tar.extractfile(self.members[index])
        return index, torch.frombuffer(bytearray(content.read()), dtype=torch.uint8)


def opened(dataset: Dataset[Any], *, workers: int = 2, collate: Any = None) -> Loader:
    return Loader(dataset, LoaderSettings(seed=3, workers=workers), collate=collate, device=torch.device("cpu"))


@pytest.mark.parametrize("kind", [Records, Handle, Members])
def test_an_open_file_has_a_place_of_its_own_in_each_process(kind: Any, tmp_path: Path) -> None:
    dataset = kind(tmp_path / "file")
    place = os.lseek(dataset.file.fileno(), 3, os.SEEK_SET)
    seen: dict[int, list[int]] = {}
    with closing(opened(dataset)) as loader:
        loader.start(Place(Cursor(), rank=0, size=1, batch_size=4, epochs=1))
        for _ in range(TOTAL // 4):
            numbers, contents = loader.next().micro[0].batch
            seen |= dict(zip(numbers.tolist(), contents.tolist(), strict=True))
    assert seen == {number: [number] * SIZE for number in range(TOTAL)}
    assert os.lseek(dataset.file.fileno(), 0, os.SEEK_CUR) == place


def test_a_deleted_file_that_is_open_can_be_read(tmp_path: Path) -> None:
    dataset = Records(tmp_path / "file")
    (tmp_path / "file").unlink()
    with closing(opened(dataset)) as loader:
        loader.start(Place(Cursor(), rank=0, size=1, batch_size=4, epochs=1))
        numbers, contents = loader.next().micro[0].batch
    assert contents[:, 0].tolist() == numbers.tolist()


def as_generator(samples: list[Any]) -> Iterator[Any]:
    yield from samples


def with_a_lock(samples: list[Any]) -> Any:
    return samples, threading.Lock()


def local_class(samples: list[Any]) -> Any:
    @dataclasses.dataclass
    class Batch:
        x: Any

    return [Batch(samples)]


def computed(samples: list[Any]) -> Any:
    return torch.ones(2, requires_grad=True) * 2


@pytest.mark.parametrize(
    ("collate", "workers", "sentence"),
    [
        (as_generator, 2, "a generator, which can be read only once: let collate return a list"),
        (as_generator, 0, "a generator, which can be read only once: let collate return a list"),
        (computed, 2, "requires its gradient.*detach.*--data-workers 0"),
        (with_a_lock, 2, "pickle.*lock.*--data-workers 0"),
        (local_class, 2, "local_class.<locals>.Batch.*outside of functions.*--data-workers 0"),
    ],
)
def test_a_batch_that_can_not_be_passed_on_is_refused_with_the_remedy(
    collate: Any, workers: int, sentence: str, tmp_path: Path
) -> None:
    refused = pytest.raises(ConfigError, match=sentence)
    with closing(opened(Records(tmp_path / "file"), workers=workers, collate=collate)) as loader, refused:
        loader.first_readable(2)


class Reusing:
    """Returns the same memory for each batch."""

    def __init__(self) -> None:
        self.tensor, self.list = torch.zeros(4, dtype=torch.long), list[int]()

    def in_a_tensor(self, samples: list[Any]) -> Any:
        return {"x": self.tensor[: len(samples)].copy_(torch.tensor([number for number, _ in samples]))}

    def in_a_list(self, samples: list[Any]) -> Any:
        self.list[:] = [number for number, _ in samples]
        return self.list


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [Reusing().in_a_tensor, Reusing().in_a_list])
def test_memory_that_the_next_batch_overwrites_is_refused(collate: Any, workers: int, tmp_path: Path) -> None:
    refused = pytest.raises(ConfigError, match=r"collate changes a batch that it has returned.*new memory")
    with closing(opened(Records(tmp_path / "file"), workers=workers, collate=collate)) as loader, refused:
        loader.first_readable(3)


def test_memory_that_batches_share_and_do_not_change_is_accepted(tmp_path: Path) -> None:
    weights = torch.ones(3)
    with closing(opened(Records(tmp_path / "file"), workers=0, collate=lambda samples: (samples, weights))) as loader:
        loader.first_readable(3)


@pytest.mark.parametrize("collate", [with_a_lock, local_class])
def test_a_batch_that_stays_in_its_process_may_contain_anything(collate: Callable[..., Any], tmp_path: Path) -> None:
    with closing(opened(Records(tmp_path / "file"), workers=0, collate=collate)) as loader:
        loader.first_readable(2)


def test_a_batch_of_tensors_strings_and_objects_is_passed_on(tmp_path: Path) -> None:
    def batch(samples: list[Any]) -> Any:
        return {"x": [torch.ones(2, requires_grad=True)], "names": ("a", None), "sparse": torch.eye(2).to_sparse()}

    with closing(opened(Records(tmp_path / "file"), collate=batch)) as loader:
        loader.first_readable(2)
