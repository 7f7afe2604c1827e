"""A rank gets exactly its planned samples, whatever was being prepared, and no process outlives the loader."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset

from tests.elastic.data.steps import draws, generators_unchanged, memberships, samples_of
from tests.processes import is_alive
from tidewater.elastic.data.loader import Loader, LoaderSettings, Place, split
from tidewater.elastic.data.sampler import Cursor, plan
from tidewater.elastic.errors import ConfigError, TrainerError

TOTAL = 53
CPU = torch.device("cpu")
BEGINNING = Cursor()
REPOSITORY = Path(__file__).parents[4]
EXAMPLES = 40 if settings().derandomize else 120
"""`make soak`, which looks for new ones, has more."""


class Numbers(Dataset[Any]):
    """Each sample is its index and a number drawn from each generator."""

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.tensor(draws(), dtype=torch.float64)


class Slow(Numbers):
    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        time.sleep(0.5)
        return super().__getitem__(index)


class Spoilt(Numbers):
    """Sample 7 can't be read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        if index == 7:
            raise self.error
        return super().__getitem__(index)


@pytest.fixture
def opened() -> Iterator[Callable[..., Loader]]:
    """Yield a function that opens loaders; close them at the end."""
    loaders = []

    def make(dataset: Dataset[Any] | None = None, *, workers: int = 0) -> Loader:
        chosen = LoaderSettings(seed=3, workers=workers, prefetch=2)
        loaders.append(Loader(dataset or Numbers(), chosen, collate=None, device=CPU))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


@pytest.fixture(scope="module", params=[0, 2], ids=["in-process", "two-processes"])
def lasting(request: pytest.FixtureRequest) -> Iterator[Loader]:
    """Yield one loader for many sequences of memberships, as in training."""
    loader = Loader(Numbers(), LoaderSettings(3, workers=request.param), collate=None, device=CPU)
    yield loader
    loader.close()


def at(
    cursor: Cursor = BEGINNING,
    *,
    rank: int = 0,
    size: int = 1,
    batch_size: int = 10,
    epochs: int = 4,
    micro_batch: int = 0,
) -> Place:
    return Place(cursor, rank, size, batch_size, epochs, micro_batch)


@given(memberships=memberships, batch_size=st.integers(1, 30), cut=st.booleans(), ahead=st.booleans())
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_every_step_has_its_planned_samples_for_any_sequence_of_memberships(
    lasting: Loader, memberships: list[tuple[int, int, int]], batch_size: int, cut: bool, ahead: bool
) -> None:
    """Each membership has a size, our rank and a number of steps; if it is cut, its last step is discarded.

    With ``ahead`` the next step is always prepared before a step fails.
    """
    cursor = Cursor()
    for size, rank, steps in memberships:
        lasting.start(at(cursor, rank=rank, size=size, batch_size=batch_size, epochs=6, micro_batch=4))
        for index in range(steps):
            if cursor.epoch == 6:
                return
            prepared = lasting.next()
            if ahead:
                lasting.prefetch()
            expected = plan(cursor, total=TOTAL, batch_size=batch_size, seed=3)
            assert prepared.step == expected
            assert tuple(samples_of(prepared)) == expected.share(rank, size)
            if not (cut and index == steps - 1):
                cursor = expected.after


@pytest.mark.parametrize("workers", [0, 2])
def test_the_ranks_of_changing_memberships_see_every_sample_once_per_epoch(
    workers: int, opened: Callable[..., Loader]
) -> None:
    loaders = [opened(workers=workers) for _ in range(3)]
    chosen, cursor, ledger = random.Random(5), Cursor(), Counter[int]()
    while cursor.epoch < 3:
        size = chosen.randint(1, 3)
        for rank in range(size):
            loaders[rank].start(at(cursor, rank=rank, size=size, batch_size=8, epochs=3, micro_batch=3))
        for _ in range(chosen.randint(0, 4)):
            prepared = [loader.next() for loader in loaders[:size]]
            if chosen.random() < 0.2:
                break  # the step failed
            ledger.update(index for part in prepared for index in samples_of(part))
            cursor = prepared[0].step.after
            if cursor.epoch == 3:
                break
    assert ledger == dict.fromkeys(range(TOTAL), 3)


def test_the_weights_of_all_micro_batches_of_a_step_add_up_to_one(opened: Callable[..., Loader]) -> None:
    parts = []
    for rank in range(4):
        loader = opened()
        loader.start(at(rank=rank, size=4, micro_batch=2))
        parts.append(loader.next())
    assert [len(part.micro) for part in parts] == [2, 2, 1, 1]
    assert sum(micro.weight for part in parts for micro in part.micro) == pytest.approx(1)
    assert all(len(micro.batch[0]) <= 2 for part in parts for micro in part.micro)


def test_micro_batches_are_few_equally_large_and_never_too_large() -> None:
    for size, most in itertools.product(range(1, 60), range(20)):
        parts = split(range(size), most)
        sizes = list(map(len, parts))
        assert [sample for part in parts for sample in part] == list(range(size))
        assert len(parts) == (-(-size // most) if most else 1)
        assert max(sizes) <= (most or size)
        assert max(sizes) - min(sizes) <= 1


def test_a_lone_sample_is_left_over_only_where_it_cannot_be_avoided(opened: Callable[..., Loader]) -> None:
    loader = opened()
    loader.start(at(batch_size=7, micro_batch=3))
    prepared = loader.next()
    assert sorted(micro.size for micro in prepared.micro) == [2, 2, 3]
    assert [micro.size for micro in prepared.micro] == [len(micro.batch[0]) for micro in prepared.micro]


def test_a_rank_without_a_sample_gets_one_of_weight_zero(opened: Callable[..., Loader]) -> None:
    loader = opened()
    loader.start(at(rank=2, size=3, batch_size=2))
    (micro,) = loader.next().micro
    assert (micro.weight, micro.size) == (0, 1)
    assert micro.batch[0].tolist() == list(plan(Cursor(), total=TOTAL, batch_size=2, seed=3).samples[:1])


def test_a_sample_is_the_same_whichever_rank_or_process_prepares_it(opened: Callable[..., Loader]) -> None:
    def seen(loader: Loader, rank: int, size: int) -> dict[int, list[float]]:
        loader.start(at(rank=rank, size=size, micro_batch=size))
        return {
            int(index): values.tolist()
            for _ in range(6)
            for micro in loader.next().micro
            for index, values in zip(*micro.batch, strict=True)
        }

    alone = seen(opened(), 0, 1)
    shared = [seen(opened(workers=workers), rank, 2) for rank, workers in ((0, 0), (1, 2))]
    assert {**shared[0], **shared[1]} == alone
    assert len({tuple(values) for values in alone.values()}) == TOTAL


def test_prefetched_samples_are_prepared_once_and_their_error_is_raised_at_their_step(
    opened: Callable[..., Loader],
) -> None:
    asked, order = [], plan(Cursor(), total=TOTAL, batch_size=TOTAL, seed=3).samples

    class Recorded(Numbers):
        def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
            asked.append(index)
            if index == order[9]:
                raise ConfigError("it is spoilt")
            return index, torch.zeros(())

    loader = opened(Recorded())
    loader.start(at(batch_size=9))
    loader.next()
    for error, message in ((ConfigError, "it is spoilt"), (RuntimeError, "no step to prepare")):
        for _ in range(2):
            loader.prefetch()
        with pytest.raises(error, match=message):
            loader.next()
    assert tuple(asked) == order[:10]


@pytest.mark.parametrize("workers", [0, 1])
def test_preparing_does_not_change_the_random_generators_of_the_training_process(
    workers: int, opened: Callable[..., Loader]
) -> None:
    with generators_unchanged():
        loader = opened(workers=workers)
        loader.start(at())
        loader.next()
        loader.prefetch()
        loader.batch((1, 2), 0)


def test_a_membership_change_waits_for_at_most_one_sample_and_starts_no_process(
    opened: Callable[..., Loader],
) -> None:
    loader = opened(Slow(), workers=2)
    processes = loader.processes
    loader.start(at(batch_size=TOTAL))  # 26 seconds of work for each process, and as much in its queue
    time.sleep(0.1)
    began = time.monotonic()
    loader.start(at(rank=1, size=20, batch_size=20))
    prepared = loader.next()
    assert time.monotonic() - began < 15  # for a few samples; the batch in progress has 25 seconds left
    assert tuple(samples_of(prepared)) == plan(Cursor(), total=TOTAL, batch_size=20, seed=3).share(1, 20)
    assert loader.processes == processes


@pytest.mark.parametrize("workers", [0, 2])
def test_no_step_follows_the_last_step_of_the_last_epoch(workers: int, opened: Callable[..., Loader]) -> None:
    loader = opened(workers=workers)
    loader.start(at(Cursor(3, 50)))
    assert loader.next().step.after == Cursor(4, 0)
    with pytest.raises(RuntimeError, match="no step"):
        loader.next()
    loader.start(at(Cursor(3, 50)))
    assert len(samples_of(loader.next())) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_dataset_reaches_the_caller_and_no_step_is_skipped(
    workers: int, opened: Callable[..., Loader]
) -> None:
    loader = opened(Spoilt(ConfigError("7.png is not a readable image")), workers=workers)
    loader.start(at(batch_size=TOTAL))
    with pytest.raises(ConfigError, match=r"^sample 7 of the dataset: 7\.png is not a readable image$"):
        loader.next()
    with pytest.raises(RuntimeError, match="no step"):
        loader.next()


def test_an_unexpected_error_comes_with_the_traceback_of_its_process(opened: Callable[..., Loader]) -> None:
    loader = opened(Spoilt(KeyError("boxes")), workers=1)
    loader.start(at(batch_size=TOTAL))
    with pytest.raises(KeyError, match=r"(?s)boxes.*__getitem__|__getitem__.*boxes") as raised:
        loader.next()
    assert "sample 7 of the dataset" in str(raised.value)


def test_an_unexpected_error_of_a_sample_or_of_collate_names_the_samples() -> None:
    def collate(items: list[Any]) -> Any:
        raise ValueError("stack expects equal sizes")

    for dataset, joined, named in ((Spoilt(KeyError("boxes")), None, "7"), (Numbers(), collate, "1, 7, 2")):
        held_out = {"validation": dataset}
        loader = Loader(dataset, LoaderSettings(seed=3), collate=joined, device=CPU, **held_out)
        with pytest.raises((KeyError, ValueError)) as raised:
            loader.batch([1, 7, 2], epoch=0)
        assert raised.value.__notes__[-1].endswith(f"{named} of the dataset")
        with pytest.raises((KeyError, ValueError)) as raised:
            list(loader.validation([[1, 7, 2]]))
        assert raised.value.__notes__[-1].endswith(f"{named} of the validation data")


def test_worker_processes_ignore_signals_for_the_training_process(opened: Callable[..., Loader]) -> None:
    loader = opened(workers=2)
    for process in loader.processes:
        os.kill(process, signal.SIGTERM)
        os.kill(process, signal.SIGINT)
    loader.start(at())
    for _ in range(8):
        loader.next()


def test_next_raises_an_error_with_the_remedy_if_a_worker_process_was_killed(opened: Callable[..., Loader]) -> None:
    loader = opened(workers=1)
    loader.start(at(epochs=1000))
    loader.next()
    os.kill(loader.processes[0], signal.SIGKILL)
    time.sleep(0.1)  # an error raised anywhere in the main thread would be raised here
    with pytest.raises(TrainerError, match="--data-workers"):
        _exhaust(loader)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("…: Too many open files (24)")])
def test_next_names_the_remedy_if_too_many_files_are_open(opened: Callable[..., Loader], error: Exception) -> None:
    loader = opened(workers=1)
    loader.start(at())
    loader._answers = map(_raise, [error])
    with pytest.raises(TrainerError, match="ulimit -n"):
        loader.next()


@pytest.mark.parametrize(
    "error", [EOFError(), ConnectionResetError(104, "Connection reset by peer")], ids=["closed", "reset"]
)
def test_next_names_the_remedy_if_a_worker_process_ends_while_it_hands_over_a_batch(
    opened: Callable[..., Loader], error: Exception
) -> None:
    loader = opened(workers=1)
    loader.start(at(epochs=1000))
    loader.next()
    os.kill(loader.processes[0], signal.SIGKILL)
    loader._answers = map(_raise, [error])
    with pytest.raises(TrainerError, match="--data-workers"):
        _exhaust(loader)


def test_closing_ends_the_worker_processes_even_while_they_work(opened: Callable[..., Loader]) -> None:
    loader = opened(Slow(), workers=2)
    loader.start(at(batch_size=TOTAL))
    processes = loader.processes
    began = time.monotonic()
    loader.close()
    loader.close()
    assert time.monotonic() - began < 15  # the batch in progress takes 26 s
    assert not any(is_alive(process) for process in processes)


PARENT = """
    import sys, time, socket
    import torch
    from tests.elastic.data.loader.test_loader import Numbers, at
    from tidewater.elastic.data.loader import Loader, LoaderSettings
    peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    loader = Loader(Numbers(), LoaderSettings(0, workers=2), collate=None, device=torch.device("cpu"))
    loader.start(at())
    loader.next()
    print(*loader.processes, flush=True)
    {ending}
"""


@pytest.mark.e2e
@pytest.mark.parametrize("ending", ["killed", "exit", "error"])
def test_worker_processes_end_with_the_training_process_and_hold_none_of_its_connections(ending: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)
    last = {"killed": "time.sleep(300)", "exit": "raise SystemExit(0)", "error": "raise ValueError('of the loop')"}
    script = textwrap.dedent(PARENT.format(ending=last[ending]))
    command = [sys.executable, "-c", script, str(listener.getsockname()[1])]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        connection, _ = listener.accept()
        processes = [int(number) for number in parent.stdout.readline().split()]
        assert len(processes) == 2
        if ending == "killed":
            assert all(is_alive(process) for process in processes)
            parent.kill()
        connection.settimeout(60)
        assert connection.recv(1) == b""
        parent.wait(60)
        deadline = time.monotonic() + 60
        while any(is_alive(process) for process in processes) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not any(is_alive(process) for process in processes)


def _raise(error: Exception) -> NoReturn:
    raise error


def _exhaust(loader: Loader) -> None:
    while True:
        loader.next()
