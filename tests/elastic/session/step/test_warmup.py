"""The warm-up succeeds with any dataset and any memory in which training can succeed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

from tests.elastic.session.step.conftest import FEATURES, loss, warm_up
from tidewater.elastic.data.loader import Loader, LoaderSettings
from tidewater.elastic.data.stream import StreamLoader
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.group import Group
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper

Made = Callable[..., tuple[Stepper, State]]


class Stream(IterableDataset[Any]):
    """The samples of a dataset, without a length."""

    def __init__(self, dataset: TensorDataset) -> None:
        self._dataset, self._next = dataset, 0

    def __iter__(self) -> Iterator[Any]:
        while self._next < len(self._dataset):
            self._next += 1
            yield self._dataset[self._next - 1]
        self._next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._next = state["next"]


class Table(nn.Module):
    """Keeps a table for the number of samples that it saw last, as rotary embeddings do for a length."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: int | None = None
        self.table: torch.Tensor | None = None
        self.rate = 0.5

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if len(given) != self.rows or self.table is None or self.table.device != given.device:
            self.rows, self.table, self.filled = len(given), torch.ones(len(given), 1), True
        return given * self.table


@pytest.fixture
def warmed(made: Made, open_for_all: Group) -> Callable[..., tuple[State, list[int], str]]:
    """Return a function that warms up. It returns the state, the sizes of the forward passes, and the log."""

    def warmed(
        *, total: int, fits: int = 2, micro_batch: int = 0, stream: bool = False, score: Any = None, held_out: int = 0
    ) -> tuple[State, list[int], str]:
        seen: list[int] = []

        def limited(model: nn.Module, batch: Any) -> torch.Tensor:
            seen.append(len(batch[0]))
            if len(batch[0]) > fits:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return loss(model, batch)

        model = nn.Sequential(Table(), nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        stepper, state = made(model, loss=limited)
        state.micro_batch = micro_batch
        dataset = TensorDataset(torch.rand(total, FEATURES), torch.zeros(total, dtype=torch.long))
        validation = TensorDataset(torch.rand(held_out, FEATURES))
        settings, cpu = LoaderSettings(seed=0), torch.device("cpu")
        loader = (
            StreamLoader(Stream(dataset), settings, collate=None, device=cpu)
            if stream
            else Loader(dataset, settings, collate=None, device=cpu, validation=validation)
        )
        known = None if stream else total
        worker: Any = SimpleNamespace(group=open_for_all, state=state)
        training = SimpleNamespace(model=model, score=score, validation=validation)
        material: Any = SimpleNamespace(stepper=stepper, loader=loader, total=known, training=training)
        with redirect_stdout(io.StringIO()) as written:
            warm_up(worker, material, Log("w"), most=9)
        loader.close()
        return state, seen, written.getvalue()

    return warmed


def test_a_dataset_of_one_sample_and_batch_normalization(warmed: Callable[..., Any]) -> None:
    assert warmed(total=1)[1] == [1, 1]


@pytest.mark.parametrize("total", [1, 9])
def test_a_stream_of_unknown_length(total: int, warmed: Callable[..., Any]) -> None:
    assert warmed(total=total, stream=True)[1] == [2, 2]


def test_a_given_micro_batch_is_not_exceeded(warmed: Callable[..., Any]) -> None:
    assert warmed(total=9, micro_batch=1)[1] == [1, 1]


def test_two_samples_that_do_not_fit_are_followed_by_one_and_the_worker_tells_the_others(
    warmed: Callable[..., Any],
) -> None:
    state, seen, written = warmed(total=9, fits=1)
    assert seen == [2, 1, 1]
    assert state.micro_batch == 1
    assert "event=out_of_memory micro_batch=1" in written


def test_one_sample_that_does_not_fit_ends_the_worker_before_it_joins(warmed: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="one sample does not fit"):
        warmed(total=9, fits=0)


@pytest.mark.parametrize(("held_out", "micro_batch", "size"), [(9, 0, 2), (1, 0, 1), (9, 1, 1)])
def test_the_score_is_tried_before_the_worker_joins(
    held_out: int, micro_batch: int, size: int, warmed: Callable[..., Any]
) -> None:
    scored: list[tuple[int, bool]] = []

    def score(model: nn.Module, batch: Any) -> torch.Tensor:
        scored.append((len(batch[0]), model.training))
        found: torch.Tensor = model(batch[0]).sum()
        return found

    warmed(total=9, held_out=held_out, micro_batch=micro_batch, score=score)
    assert scored == [(size, False)]


def test_without_validation_data_there_is_nothing_to_try(warmed: Callable[..., Any]) -> None:
    warmed(total=9, held_out=0, score=lambda model, batch: pytest.fail("it has no batch"))


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (
            lambda model, batch: model(batch[0]),
            r"a Tensor of shape \(2, 3\): return one number, the sum",
        ),
        (lambda model, batch: None, "a NoneType: return one number"),
        (lambda model, batch: {"accuracy": 1.0}, "a dict: return one number"),
    ],
    ids=["tensor", "nothing", "dict"],
)
def test_a_score_that_is_no_number_ends_the_worker_before_it_joins(
    score: Any, says: str, warmed: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError, match=says):
        warmed(total=9, held_out=9, score=score)


@pytest.mark.parametrize("how", ["join", "resume"])
def test_a_cache_that_passes_fill_is_empty_after_the_warm_up_and_its_keys_are_not_handed_over(
    how: str, warmed: Callable[..., Any]
) -> None:
    peer, other = (warmed(total=9)[0] for _ in range(2))
    mine, own = peer.model[0], other.model[0]
    for table in (mine, own):
        assert (table.rows, table.table, hasattr(table, "filled")) == (None, None, False)
    mine(torch.rand(5, FEATURES))
    mine.rate = 0.7
    assert peer.attributes.changed() == {"0.rate": 0.7}
    peer.present = True
    (other.load if how == "join" else other.resume)(peer.tree())
    own(torch.rand(5, FEATURES))
    other.load({**peer.tree(), "attributes": {"0.rows": 7, "0.rate": 0.6}})
    assert (own.rows, len(own.table), own.rate) == (5, 5, 0.6)
    own(torch.rand(7, FEATURES))
