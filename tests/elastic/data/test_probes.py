"""Equal data are always alike, however they are represented, and another split or another order of files never is."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from tests.elastic.data.stream.test_stream import Lines
from tidewater.elastic.data import probes as module
from tidewater.elastic.data.loader import LoaderSettings
from tidewater.elastic.data.probes import probe, probes
from tidewater.elastic.data.seeds import generators_kept, seed_script
from tidewater.elastic.data.stream import open_loader
from tidewater.elastic.membership.evidence import Evidence, Probe, contradiction
from tidewater.elastic.training import Training

TOTAL = 200
Draw = Callable[[], list[int]]
NOW = int(time.time())
SOUND = np.random.default_rng(0).integers(-3000, 3000, (1, 8000), dtype=np.int16)
BRIGHTER = np.full((8, 8, 3), 100, dtype=np.uint8)
BRIGHTER[2, 3] = 101  # as another decoder of JPEG rounds


@dataclass
class Point:
    x: float
    name: str


class Unknown:
    """Its repr has an address."""


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8))


SAMPLES: dict[str, Callable[[int], Any]] = {
    "label": lambda n: n,
    "string": lambda n: f"text {n}",
    "bytes": lambda n: bytes([n]),
    "float": lambda n: n + 0.5,
    "float tensor": lambda n: torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(n)),
    "half tensor": lambda n: torch.rand(64, generator=torch.Generator().manual_seed(n)).bfloat16(),
    "complex tensor": lambda n: torch.rand(9, dtype=torch.cfloat, generator=torch.Generator().manual_seed(n)).conj(),
    "one-hot": lambda n: torch.eye(50)[n],
    "tokens": lambda n: torch.arange(n, n + 20),
    "narrow label": lambda n: torch.tensor([n], dtype=torch.uint8),
    "narrow tokens": lambda n: np.arange(n, n + 20, dtype=np.uint16),
    "sound": lambda n: np.random.default_rng(n).integers(-3000, 3000, (1, 8000), dtype=np.int16),
    "series of times": lambda n: torch.arange(n, n + 20) + NOW,
    "mask": lambda n: torch.arange(20) < n,
    "array": lambda n: np.random.default_rng(n).random((4, 5)),
    "array of strings": lambda n: np.array(["a", str(n)]),
    "numpy's number": lambda n: np.float32(n),
    "picture": picture,
    "dict": lambda n: {"b": torch.tensor([n]), "a": [1, (2, None)]},
    "dataclass": lambda n: Point(n, "p"),
    "path": lambda n: Path(f"/data/{n}.png"),
    "nan": lambda n: torch.tensor([float("nan"), float("inf"), n]),
    "gradient": lambda n: torch.tensor([float(n)], requires_grad=True),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_like_itself_and_unlike_another_one(name: str) -> None:
    sample = SAMPLES[name]
    assert probe(sample(3)).is_like(probe(sample(3)))
    assert not probe(sample(3)).is_like(probe(sample(4)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ("/mnt/one/images/7.png", "/data/images/7.png"),
        ("file:///tmp/w3/7.png", "file:///tmp/w4/7.png"),
        (NOW, NOW - 3),
        (torch.tensor([NOW * 10**9]), torch.tensor([(NOW - 10**8) * 10**9])),
        (SOUND, SOUND + np.arange(8000, dtype=np.int16) % 2),
        (Unknown(), Unknown()),
        ([Unknown()], [Unknown()]),
        ({1, 2}, {2, 1}),
        (torch.zeros(2, 2).to_sparse(), torch.zeros(2, 2).to_sparse()),
        (torch.full((64,), 0.1), torch.full((64,), 0.1).nextafter(torch.ones(64))),
        (torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0)).bfloat16(),) * 2,
        (np.full((8, 8, 3), 100, dtype=np.uint8), BRIGHTER),
    ],
    ids=[
        *("order of keys", "place of a file", "place in a URL", "time", "time of a file", "sound"),
        *("object", "list of objects", "set", "sparse", "last bit", "half", "image"),
    ],
)
def test_what_differs_between_equal_workers_does_not_count(one: Any, other: Any) -> None:
    assert probe(one).is_like(probe(other))


@pytest.fixture
def probe_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Any], Probe]:
    """Return a function that makes a probe in the process of this id, on a host that is named after it."""

    def probe_in(process: int, sample: Any) -> Probe:
        monkeypatch.setattr(os, "getpid", lambda: process)
        monkeypatch.setattr(socket, "gethostname", lambda: f"w-{process}")
        return probe(sample)

    return probe_in


@pytest.mark.parametrize(
    "own", [lambda n: n, lambda n: torch.tensor([n]), lambda n: f"w-{n}"], ids=["id", "id in a batch", "host"]
)
def test_a_value_that_only_the_process_has_does_not_count_and_hides_no_label(
    own: Callable[[int], Any], probe_in: Callable[[int, Any], Probe]
) -> None:
    first = probe_in(71, (own(71), 3))
    assert first.is_like(probe_in(72, (own(72), 3)))
    assert not first.is_like(probe_in(72, (own(72), 4)))
    assert not first.is_like(probe_in(72, (own(73), 3)))


def test_a_label_that_is_the_id_of_one_process_by_chance_is_still_a_label(
    probe_in: Callable[[int, Any], Probe],
) -> None:
    assert probe_in(7, 7).is_like(probe_in(8, 7))
    assert not probe_in(7, 7).is_like(probe_in(8, 6))


def test_what_contains_itself_and_what_is_huge_ends() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert probe(endless).is_like(probe(endless))
    began = time.monotonic()
    assert probe(torch.zeros(2**24)).is_like(probe(torch.zeros(2**24)))
    assert probe(list(range(10**6))).is_like(probe(list(range(10**6))))
    assert time.monotonic() - began < 2


def found(dataset: Any, seed: int = 0, validation: Any = None, max_bad_samples: int = 0) -> Evidence:
    """Return what one worker finds."""
    nothing: Any = None
    training = Training(nothing, nothing, dataset, nothing, validation=validation)
    opened = open_loader(training, LoaderSettings(seed, max_bad_samples=max_bad_samples), torch.device("cpu"))
    try:
        return Evidence(samples=probes(training, opened, seed))
    finally:
        opened.close()


def by_numpy() -> list[int]:
    return [int(each) for each in np.random.permutation(TOTAL)[:150]]


def by_random() -> list[int]:
    return random.sample(range(TOTAL), 150)


def by_torch() -> list[int]:
    return torch.randperm(TOTAL)[:150].tolist()


@pytest.mark.parametrize("draw", [by_numpy, by_random, by_torch])
def test_a_split_by_a_seeded_generator_is_the_same_in_all_workers_and_another_one_is_named(draw: Draw) -> None:
    data = TensorDataset(torch.rand(TOTAL, 6, generator=torch.Generator().manual_seed(0)))

    def split(seed: int) -> Evidence:
        with generators_kept():
            seed_script(seed)
            return found(Subset(data, draw()))

    assert split(1).samples
    assert contradiction(split(1), split(1)) is None
    what, _ = contradiction(split(1), split(2)) or ("", "")
    assert what.startswith("sample ")
    assert what.endswith(" of the dataset is another one there")


def test_other_validation_data_are_named() -> None:
    data = TensorDataset(torch.rand(TOTAL, 6, generator=torch.Generator().manual_seed(0)))
    one, other = (found(data, validation=Subset(data, range(start, start + 20))) for start in (0, 1))
    what, _ = contradiction(one, other) or ("", "")
    assert what.endswith(" of the validation data is another one there")


class Augmented(Dataset[Any]):
    """Draws from a global generator, or from one of its own that has another seed in each worker."""

    def __init__(self, own: bool) -> None:
        self._draw = random.Random().random if own else random.random

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.arange(12.0).view(3, 4) * index
        return image.flip(1) if self._draw() < 0.5 else image, index


def test_samples_that_draw_from_the_global_generators_are_compared() -> None:
    one = found(Augmented(own=False))
    random.random()  # as after any other history
    assert one.samples
    assert contradiction(one, found(Augmented(own=False))) is None


def test_samples_that_draw_from_a_generator_of_their_own_are_not() -> None:
    assert all(contradiction(found(Augmented(own=True)), found(Augmented(own=True))) is None for _ in range(20))


@pytest.mark.parametrize(("seconds", "reads", "compared"), [(10.0, 2, 1), (0.6, 5, 4), (0.35, 6, 4), (0.1, 16, 4)])
def test_samples_that_take_long_are_not_all_read_again(
    monkeypatch: pytest.MonkeyPatch, seconds: float, reads: int, compared: int
) -> None:
    read: list[int] = []

    class Slow(Augmented):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            read.append(index)
            return torch.zeros(1), index

    clock = SimpleNamespace(monotonic=lambda: len(read) * seconds + 5.0, time=time.time)
    monkeypatch.setattr(module, "time", clock)
    assert len(found(Slow(own=False)).samples) == compared
    assert len(read) == reads
    assert read.count(read[0]) >= 2


def test_a_dataset_that_says_what_it_is_is_not_read() -> None:
    class Named(Augmented):
        digest = "v1"

    def of(dataset: Any, validation: Any) -> set[str]:
        return {name.partition(" of ")[2] for name in found(dataset, validation=validation).samples}

    plain = Augmented(own=False)
    assert of(Named(own=False), plain) == {"the validation data"}
    assert of(plain, Named(own=False)) == {"the dataset"}
    lines = Lines()
    lines.digest = "v1"  # type: ignore[attr-defined]
    assert of(lines, None) == set()


def test_a_sample_that_cannot_be_read_is_left_to_training() -> None:
    class Spoilt(Augmented):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            raise OSError("the volume is away")

    assert found(Spoilt(own=False)).samples == {}


def test_a_sample_that_is_left_out_is_not_compared_as_the_next_one() -> None:
    good = found(range(TOTAL))
    spoilt = int(next(iter(good.samples)).split()[1])

    class Spoilt(Dataset[int]):
        def __len__(self) -> int:
            return TOTAL

        def __getitem__(self, index: int) -> int:
            if index == spoilt:
                raise OSError("damaged")
            return index

    assert contradiction(good, found(Spoilt(), max_bad_samples=9)) is None


def test_a_stream_is_compared_by_its_beginning() -> None:
    class Reversed(Lines):
        def _sample(self, number: int) -> Any:
            return super()._sample(22 - number)

    assert contradiction(found(Lines()), found(Lines())) is None
    what, _ = contradiction(found(Lines()), found(Reversed())) or ("", "")
    assert what == "the beginning of the dataset (the first 4 samples) is another one there"


def test_a_dataset_smaller_than_the_probes_is_compared_whole() -> None:
    assert len(found(TensorDataset(torch.rand(2, 3))).samples) == 2
