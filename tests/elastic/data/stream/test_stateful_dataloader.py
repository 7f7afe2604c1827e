"""torchdata's StatefulDataLoader is a stream: its state is read and set as its documentation says."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.elastic.data.steps import generators_unchanged, samples_of
from tests.elastic.data.stream.test_stream import TOTAL, Lines, at, handed_over, opened, order
from tests.elastic.method.test_checks import CONFIG, training
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.data.stream import length
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.checks import check


class Stateless(IterableDataset[Any]):
    """Has no state: the StatefulDataLoader reads again as many samples as it has counted."""

    def __iter__(self) -> Iterator[Any]:
        yield from ((number, torch.rand(())) for number in range(TOTAL))


class Iterating(IterableDataset[Any]):
    """Its iterator has the state."""

    def __iter__(self) -> Iterator[Any]:
        return Numbers()


class Numbers(Iterator[Any]):
    def __init__(self) -> None:
        self.next = 0

    def __next__(self) -> Any:
        if self.next == TOTAL:
            raise StopIteration
        self.next += 1
        return self.next - 1, torch.rand(())

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = state["next"]


class Sized(Lines):
    def __len__(self) -> int:
        return self._total


def loaded(dataset: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of torchdata, about a function of torch
        return StatefulDataLoader(dataset, **{"batch_size": None, **options})


@pytest.mark.parametrize("dataset", [Lines, Sized, Iterating])
@pytest.mark.parametrize("every", [1, 4])
def test_every_sample_is_used_once_per_pass_at_any_sequence_of_memberships(dataset: Any, every: int) -> None:
    chosen, cursor, ledger = random.Random(every), Cursor(), Counter[int]()
    loaders = [opened(loaded(dataset(), snapshot_every_n_steps=every)) for _ in range(3)]
    while cursor.epoch < 2:
        size, newcomer = chosen.randint(1, 3), chosen.randrange(3)
        loaders[newcomer] = opened(loaded(dataset(), snapshot_every_n_steps=every))
        for rank in range(size):
            loaders[rank].start(at(handed_over(cursor), rank=rank, size=size, micro_batch=2))
        for _ in range(chosen.randint(1, 3)):
            prepared = [loader.next() for loader in loaders[:size]]
            if chosen.random() < 0.3 or cursor.epoch == 2:
                break  # the step failed
            for loader in loaders[:size]:
                loader.prefetch()
            ledger.update(index for part in prepared for index in samples_of(part))
            assert all(part.step.after.stream == prepared[0].step.after.stream for part in prepared)
            cursor = prepared[0].step.after
    assert ledger == dict.fromkeys(range(TOTAL), 2)


def test_a_sample_is_the_same_after_a_resume() -> None:
    def seen(new: bool) -> list[Any]:
        found, cursor, loader = [], Cursor(), opened(loaded(Lines()))
        loader.start(at())
        while cursor.epoch == 0:
            if new:
                loader = opened(loaded(Lines()))
                loader.start(at(handed_over(cursor)))
            prepared = loader.next()
            cursor = prepared.step.after
            found.append([values.tolist() for values in prepared.micro[0].batch])
        return found

    assert seen(new=True) == seen(new=False)


def test_each_pass_has_the_order_that_the_dataset_chooses_for_it() -> None:
    loader = opened(loaded(Lines()))
    loader.start(at(batch_size=TOTAL))
    assert [samples_of(loader.next()) for _ in range(2)] == [order(0), order(1)]


def test_opening_one_does_not_change_the_random_generators_of_the_training_process() -> None:
    with generators_unchanged():
        opened(loaded(Lines()))


def test_its_length_is_that_of_its_dataset_if_that_has_one() -> None:
    assert length(loaded(Lines())) is None
    assert length(loaded(Sized())) == TOTAL


def test_one_is_accepted() -> None:
    check(training(loaded(Lines())), CONFIG)


INDEXED = TensorDataset(torch.zeros(9))


@pytest.mark.parametrize(
    ("loader", "sentence"),
    [
        (lambda: loaded(Lines(), batch_size=4), "has batch_size=4, .* batch_size=None and --batch-size"),
        (lambda: loaded(Lines(), num_workers=2), "has num_workers=2: one process must read .* num_workers=0"),
        (lambda: loaded(INDEXED), "StatefulDataLoader of a dataset with an index: give that .*collate"),
        (lambda: DataLoader(INDEXED, 4), "is a DataLoader of a dataset with an index: give that .*collate"),
        (lambda: DataLoader(Lines(), None), "is a DataLoader, .* torchdata's StatefulDataLoader"),
    ],
    ids=["batches", "processes", "indexed", "DataLoader", "DataLoader of a stream"],
)
def test_what_it_can_not_be_is_refused_with_the_remedy(loader: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check(training(loader()), CONFIG)


def test_a_dataset_without_a_state_is_refused_because_the_loader_counts_wrongly_after_a_resume() -> None:
    with pytest.raises(ConfigError, match=r"StatefulDataLoader, doesn't continue .* give Stateless state_dict\(\)"):
        opened(loaded(Stateless()))


def test_a_buffer_of_hugging_face_is_found_inside_it() -> None:
    lines: Any = Lines()
    lines._ex_iterable = type("BufferShuffledExamplesIterable", (), {})()
    with pytest.raises(ConfigError, match="Hugging Face"):
        check(training(loaded(lines)), CONFIG)


def test_validation_in_a_loader_is_refused_with_the_remedy() -> None:
    given = training(INDEXED, validation=DataLoader(INDEXED), score=lambda model, batch: batch)
    with pytest.raises(ConfigError, match="validation is a DataLoader of a dataset with an index: give that"):
        check(given, CONFIG)
