"""Every sample of a stream is used once per pass, in one order, at any sequence of memberships."""

from __future__ import annotations

import collections
import copy
import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, TensorDataset

from tests.elastic.data.steps import draws, generators_unchanged, memberships, samples_of
from tests.pages import blocks
from tidewater.elastic.data.loader import LoaderSettings, Place
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.data.stream import StreamLoader
from tidewater.elastic.errors import ConfigError

TOTAL = 23
CPU = torch.device("cpu")
BEGINNING = Cursor()


class Lines(IterableDataset[Any]):
    """Numbers in another order in each pass, each with draws from all generators."""

    def __init__(self, total: int = TOTAL) -> None:
        self._total = total
        self._epoch = self._next = 0
        self.read: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        while self._next < self._total:
            self._next += 1
            yield self._sample(order(self._epoch, self._total)[self._next - 1])
        self._next = 0

    def _sample(self, number: int) -> Any:
        self.read.append(number)
        return number, torch.tensor(draws(), dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


def order(epoch: int, total: int = TOTAL) -> list[int]:
    return random.Random(epoch).sample(range(total), total)


def opened(dataset: Any = None, *, collate: Any = None, validation: Any = None) -> StreamLoader:
    chosen = LoaderSettings(seed=3)
    return StreamLoader(
        Lines() if dataset is None else dataset, chosen, collate=collate, device=CPU, validation=validation
    )


def at(
    cursor: Cursor = BEGINNING,
    *,
    rank: int = 0,
    size: int = 1,
    batch_size: int = 5,
    epochs: int = 3,
    micro_batch: int = 0,
) -> Place:
    return Place(cursor, rank, size, batch_size, epochs, micro_batch)


def handed_over(cursor: Cursor) -> Cursor:
    """Return the cursor as a newcomer gets it."""
    return copy.deepcopy(cursor)


@given(
    memberships=memberships,
    total=st.integers(1, 30),
    batch_size=st.integers(1, 12),
    cut=st.booleans(),
    ahead=st.booleans(),
    new=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_every_step_has_the_next_samples_for_any_sequence_of_memberships(
    memberships: list[tuple[int, int, int]], total: int, batch_size: int, cut: bool, ahead: bool, new: bool
) -> None:
    """Each membership has a size, our rank and a number of steps; if it is cut, its last step is discarded.

    With ``ahead`` the next step is read before a step fails. With ``new`` each membership has a new process.
    """
    cursor, loader = Cursor(), opened(Lines(total))
    for size, rank, steps in memberships:
        if new:
            loader, cursor = opened(Lines(total)), handed_over(cursor)
        loader.start(at(cursor, rank=rank, size=size, batch_size=batch_size, epochs=4, micro_batch=3))
        for index in range(steps):
            if cursor.epoch == 4:
                return
            prepared = loader.next()
            if ahead:
                loader.prefetch()
            end = min(cursor.offset + batch_size, total)
            assert prepared.step.samples == tuple(range(cursor.offset, end))
            assert samples_of(prepared) == order(cursor.epoch, total)[cursor.offset : end][rank::size]
            after = Cursor(cursor.epoch, end) if end < total else Cursor(cursor.epoch + 1)
            assert prepared.step.after == after
            assert prepared.step.after.stream == ({"next": end} if end < total else None)
            if not (cut and index == steps - 1):
                cursor = prepared.step.after


@given(sizes=st.lists(st.integers(1, 3), min_size=1), seed=st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_the_ranks_of_changing_memberships_see_every_sample_once_per_pass(sizes: list[int], seed: int) -> None:
    loaders = [opened() for _ in range(3)]
    chosen, cursor, ledger, turn = random.Random(seed), Cursor(), Counter[int](), 0
    while cursor.epoch < 3:
        size, turn = sizes[turn % len(sizes)], turn + 1
        newcomer = chosen.randrange(3)
        loaders[newcomer] = opened()
        for rank in range(size):
            loaders[rank].start(at(handed_over(cursor), rank=rank, size=size, micro_batch=2))
        for _ in range(chosen.randint(1, 4)):
            prepared = [loader.next() for loader in loaders[:size]]
            if chosen.random() < 0.2:
                break  # the step failed
            for loader in loaders[:size]:
                loader.prefetch()
            ledger.update(index for part in prepared for index in samples_of(part))
            assert sum(micro.weight for part in prepared for micro in part.micro) == pytest.approx(1)
            cursor = prepared[0].step.after
            assert all(part.step == prepared[0].step for part in prepared)
            if cursor.epoch == 3:
                break
    assert ledger == dict.fromkeys(range(TOTAL), 3)


def test_reading_ahead_and_the_warm_up_change_nothing_that_follows() -> None:
    def seen(disturb: Callable[[StreamLoader], object]) -> list[Any]:
        loader = opened()
        disturb(loader)
        loader.start(at(epochs=1))
        found = []
        for _ in range(5):
            prepared = loader.next()
            disturb(loader)
            found.append((prepared.step.after.stream, prepared.micro[0].batch[1].tolist()))
        return found

    undisturbed = seen(lambda _: None)
    assert seen(lambda loader: loader.prefetch()) == undisturbed
    assert seen(lambda loader: loader.batch(range(7), 0)) == undisturbed


def test_a_dataset_may_go_on_changing_the_state_that_it_has_given() -> None:
    class Live(Lines):
        def __init__(self) -> None:
            super().__init__()
            self._live = {"next": 0}

        def state_dict(self) -> dict[str, Any]:
            return self._live

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self._live, self._next = state, state["next"]

        def _sample(self, number: int) -> Any:
            self._live["next"] = self._next
            return super()._sample(number)

    loader = opened(Live())
    loader.start(at())
    after = loader.next().step.after
    for again in range(2):
        loader.start(at(after))
        assert samples_of(loader.next()) == order(0)[5:10], again


def test_the_example_of_the_guide_is_read_once_at_any_sequence_of_memberships(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("docs/training/data.md", "python") if block.startswith("class Lines")]
    names: dict[str, Any] = {"torch": torch}
    exec(example, names)
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(TOTAL)))
    seen: list[int] = []
    cursor = Cursor()
    while cursor.epoch < 2:
        loader = opened(names["Lines"](tmp_path / "lines"))
        loader.start(at(handed_over(cursor)))
        prepared = loader.next()
        seen += map(int, prepared.micro[0].batch)
        cursor = prepared.step.after
    assert seen == [*range(TOTAL)] * 2


def test_without_a_failure_each_sample_is_read_once() -> None:
    dataset = Lines()
    loader = opened(dataset)
    loader.start(at(epochs=1))
    dataset.read.clear()
    cursor = Cursor()
    while cursor.epoch == 0:
        cursor = loader.next().step.after
        loader.prefetch()
    assert dataset.read == order(0)


def test_a_sample_is_the_same_whichever_rank_reads_it_and_from_wherever() -> None:
    def seen(rank: int, size: int, new: bool) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        cursor, loader = Cursor(), opened()
        loader.start(at(cursor, rank=rank, size=size))
        while cursor.epoch == 0:
            if new:
                loader = opened()
                loader.start(at(handed_over(cursor), rank=rank, size=size))
            prepared = loader.next()
            cursor = prepared.step.after
            numbers, values = prepared.micro[0].batch
            found.update(zip(numbers.tolist(), values.tolist(), strict=True))
        return found

    alone = seen(0, 1, new=False)
    assert {**seen(0, 2, new=True), **seen(1, 2, new=False)} == alone
    assert len({tuple(values) for values in alone.values()}) == TOTAL


def test_a_collate_function_draws_new_numbers_for_each_batch_and_equal_ones_wherever_it_is_read() -> None:
    def mixed(items: list[Any]) -> Any:
        return random.random(), [drawn[1].item() for _, drawn in items]

    def seen(new: bool) -> list[float]:
        found, cursor, loader = [], Cursor(), opened(collate=mixed)
        loader.start(at())
        while cursor.epoch == 0:
            if new:
                loader = opened(collate=mixed)
                loader.start(at(handed_over(cursor)))
            prepared = loader.next()
            cursor = prepared.step.after
            drawn, samples = prepared.micro[0].batch
            assert drawn not in samples
            found.append(drawn)
        return found

    assert seen(new=True) == seen(new=False)
    assert len(set(seen(new=False))) == 5


def test_reading_does_not_change_the_random_generators_of_the_training_process() -> None:
    with generators_unchanged():
        loader = opened()
        loader.start(at())
        loader.next()
        loader.prefetch()
        loader.batch((1, 2), 0)


def test_a_rank_without_a_sample_gets_one_of_weight_zero() -> None:
    loader = opened()
    loader.start(at(rank=2, size=3, batch_size=2))
    (micro,) = loader.next().micro
    assert (micro.weight, micro.size) == (0, 1)
    assert micro.batch[0].tolist() == order(0)[:1]


def test_an_evaluation_between_two_steps_changes_nothing() -> None:
    loader = opened(validation=TensorDataset(torch.arange(9)))
    loader.start(at())
    first = loader.next()
    loader.prefetch()
    assert [batch[0].tolist() for batch in loader.validation([(0, 1), (8,)])] == [[0, 1], [8]]
    assert samples_of(first) + samples_of(loader.next()) == order(0)[:10]


def test_no_step_follows_the_last_step_of_the_last_pass() -> None:
    loader = opened()
    loader.start(at(epochs=1, batch_size=TOTAL))
    assert loader.next().step.after == Cursor(1)
    loader.prefetch()
    with pytest.raises(RuntimeError, match="no step"):
        loader.next()


@pytest.mark.parametrize("batch_size", [4, 7], ids=["first of a step", "inside a step"])
def test_an_error_is_raised_at_its_step_and_no_step_is_skipped(batch_size: int) -> None:
    class Spoilt(Lines):
        spoilt = True

        def _sample(self, number: int) -> Any:
            if self.spoilt and number == order(0)[8]:
                raise ConfigError("it is spoilt")
            return super()._sample(number)

    dataset = Spoilt()
    loader = opened(dataset)
    loader.start(at(batch_size=batch_size))
    good = [loader.next() for _ in range(8 // batch_size)]
    loader.prefetch()
    for error, message in ((ConfigError, "it is spoilt"), (RuntimeError, "no step")):
        with pytest.raises(error, match=message):
            loader.next()
    dataset.spoilt = False
    loader.start(at(good[-1].step.after, batch_size=batch_size))
    read = [sample for part in (*good, loader.next()) for sample in samples_of(part)]
    assert read == order(0)[: len(read)]


def test_a_stream_that_counts_a_sample_after_it_is_yielded_is_refused_with_the_remedy() -> None:
    class Late(Lines):
        def __iter__(self) -> Iterator[Any]:
            while self._next < self._total:
                yield self._sample(self._next)
                self._next += 1

    with pytest.raises(ConfigError, match=r"Late, doesn't continue where its state_dict\(\) says.* before it is"):
        opened(Late())


@dataclasses.dataclass
class Sample:
    x: Any


@pytest.mark.parametrize("kind", [Sample, lambda x: collections.UserDict(x=x), lambda x: [Sample({"x": x})]])
def test_samples_of_any_kind_are_compared(kind: Any) -> None:
    class Late(Lines):
        def __iter__(self) -> Iterator[Any]:
            while self._next < self._total:
                yield kind(torch.tensor(self._next))
                self._next += 1

    with pytest.raises(ConfigError, match="Late, doesn't continue"):
        opened(Late(), collate=list)


def test_a_stream_that_begins_anew_in_set_epoch_is_refused() -> None:
    class Anew(Lines):
        def set_epoch(self, epoch: int) -> None:
            self._epoch, self._next = epoch, 0

    with pytest.raises(ConfigError, match="Anew, doesn't continue"):
        opened(Anew())


def test_a_state_that_cannot_be_stored_is_refused_with_its_place() -> None:
    class Unknown(Lines):
        def state_dict(self) -> dict[str, Any]:
            return {"next": self._next, "seen": [object()]}

    with pytest.raises(ConfigError, match=r"builtins\.object at dataset\.seen"):
        opened(Unknown())


def test_an_empty_stream_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="Lines, has no sample 0 in pass 0"):
        opened(Lines(0))


def test_a_stream_that_became_shorter_is_refused_by_name() -> None:
    loader = opened(Lines(8))
    loader.start(at(Cursor(0, 10, {"next": 10})))
    with pytest.raises(ConfigError, match="Lines, has no sample 10 in pass 0, where training continues"):
        loader.next()


def test_memory_that_the_next_batch_overwrites_is_refused() -> None:
    memory = torch.zeros(4, dtype=torch.long)

    def collate(items: list[Any]) -> Any:
        return memory[: len(items)].copy_(torch.tensor([number for number, _ in items]))

    with pytest.raises(ConfigError, match="collate changes a batch that it has returned"):
        opened(collate=collate).first_readable(3)


def test_the_samples_of_a_short_stream_are_repeated_for_the_warm_up() -> None:
    loader = opened(Lines(2))
    assert loader.batch(range(5), 0)[0].tolist() == [order(0, 2)[index % 2] for index in range(5)]
