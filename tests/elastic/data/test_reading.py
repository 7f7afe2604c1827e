"""A read that doesn't end by itself is named with its file, and ended after the limit or when the worker must leave."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from tests.processes import eventually
from tidewater.elastic.data import reading
from tidewater.elastic.data.loader import Loader, LoaderSettings, Place
from tidewater.elastic.data.reading import DATASET, PROCESSES, Readings, Watch, waits_for
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.data.stream import StreamLoader
from tidewater.elastic.errors import BadSamples, DataStuck, GroupBroken
from tidewater.elastic.observe.log import Log, parse

CPU = torch.device("cpu")
LIMIT = 300.0
PATIENCE_SECONDS = 60.0


class Blocking(Dataset[Any]):
    """Sample 7 is in a file that blocks."""

    def __init__(self, pipe: Path) -> None:
        self.pipe = pipe

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        if index == 7:
            self.pipe.read_bytes()
        return index


class Lines(IterableDataset[int]):
    """The same as a stream, which reads on where it was."""

    def __init__(self, pipe: Path) -> None:
        self.samples, self.place = Blocking(pipe), 0
        self.blocks = False

    def __iter__(self) -> Iterator[int]:
        while self.place < len(self.samples):
            self.place += 1
            yield self.samples[self.place - 1] if self.blocks else self.place - 1

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """Yield a pipe without a writer. After a while it gets one, so that a test that fails does end."""
    path = tmp_path / "7.png"
    os.mkfifo(path)
    rescue = threading.Timer(PATIENCE_SECONDS, lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK)))
    rescue.start()
    yield path
    rescue.cancel()


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(reading.SIGNAL)
    yield
    signal.signal(reading.SIGNAL, before)


@pytest.fixture(params=["in-process", "one-process", "stream"])
def loader(request: pytest.FixtureRequest, pipe: Path) -> Iterator[Loader]:
    if request.param == "stream":
        lines = Lines(pipe)
        made: Loader = StreamLoader(lines, LoaderSettings(seed=0), collate=None, device=CPU)
        lines.blocks = True
    else:
        workers = int(request.param == "one-process")
        made = Loader(Blocking(pipe), LoaderSettings(seed=0, workers=workers), collate=None, device=CPU)
    yield made
    made.close()


class Watched:
    """A watch with a clock of its own, which goes on when a process is in the kernel."""

    def __init__(self, readings: Readings, *, leaves: bool = False, limit: float = LIMIT) -> None:
        self.out, self.now = io.StringIO(), 1000.0
        self.readings = readings
        self.watch = Watch(readings, Log("a"), limit)
        self.watch.serve(Log("a", stream=self.out), lambda: leaves)
        readings.handle()

    def look_until(self, last: float) -> None:
        """Look every second from the last look on."""
        while self.now < last:
            self.now += 1
            self.watch.look(self.now)

    def while_it_waits(self, seconds: float) -> None:
        """Look for so long, from another thread, as soon as a file blocks."""

        def look() -> None:
            eventually(lambda: any(waits_for(each.pid) for each in self.readings.now() if each.busy))
            self.look_until(self.now + 1 + seconds)

        threading.Thread(target=look, daemon=True).start()

    def events(self) -> list[dict[str, str]]:
        return [parse(line) for line in self.out.getvalue().splitlines()]


def test_a_file_that_blocks_is_named_and_ends_the_worker_after_the_limit(loader: Loader, pipe: Path) -> None:
    watched = Watched(loader.readings)
    loader.start(Place(Cursor(), rank=0, size=1, batch_size=10, epochs=1))
    watched.while_it_waits(LIMIT)
    with pytest.raises(DataStuck, match=r"^sample 7 of the dataset was not read in 300 s") as raised:
        loader.next()
    assert str(pipe) in str(raised.value)
    late = watched.events()[0]
    assert (late["event"], late["sample"], late["file"], late["seconds"]) == ("data_late", "7", str(pipe), "10")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_blocks_is_left_out_if_bad_samples_are(pipe: Path, workers: int) -> None:
    loader = Loader(
        Blocking(pipe), LoaderSettings(seed=0, workers=workers, max_bad_samples=1), collate=None, device=CPU
    )
    try:
        loader.start(Place(Cursor(), rank=0, size=1, batch_size=10, epochs=1))
        Watched(loader.readings).while_it_waits(LIMIT)
        with pytest.raises(BadSamples, match="sample 7 of the dataset was not read in 300 s") as raised:
            loader.next()
        loader.start(Place(Cursor(skipped=tuple(raised.value.errors)), rank=0, size=1, batch_size=10, epochs=1))
        assert sorted(loader.next().micro[0].batch.tolist()) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    finally:
        loader.close()


def test_a_worker_that_must_leave_waits_for_no_file(loader: Loader) -> None:
    watched = Watched(loader.readings, leaves=True)
    loader.start(Place(Cursor(), rank=0, size=1, batch_size=10, epochs=1))
    watched.while_it_waits(2)
    with pytest.raises(GroupBroken, match="must leave, and waits for sample 7 of the dataset"):
        loader.next()
    loader.close()
    assert not any(Path(f"/proc/{each.pid}").exists() for each in loader.readings.now()[1:])


def test_closing_does_not_wait_for_a_file_that_blocks(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 2 * PATIENCE_SECONDS)
    loader = Loader(Blocking(pipe), LoaderSettings(seed=0, workers=1), collate=None, device=CPU)
    loader.start(Place(Cursor(), rank=0, size=1, batch_size=10, epochs=1))
    Watched(loader.readings, leaves=True).while_it_waits(2)
    with contextlib.suppress(GroupBroken):
        loader.next()
    gc.collect()  # the error's traceback refers to the iterator of the processes, and to itself
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < PATIENCE_SECONDS / 2


def test_a_read_that_goes_on_is_not_ended() -> None:
    """Only a sample that takes long by itself is; not a batch of many."""
    readings = Readings()
    watched = Watched(readings)
    for at in range(1000, 4000):
        with readings.of(at, DATASET):
            watched.look_until(at)
    with readings.of(4000, DATASET):
        for at in range(4000, 7000):
            readings.sample[0] = at
            watched.look_until(at)
    assert not watched.events()


def test_a_sample_that_is_read_in_time_is_not_ended_for_the_one_before_it_in_the_batch() -> None:
    readings = Readings()
    readings.handle()
    with readings.of(1, DATASET):
        late = readings.now()[0]
        readings.sample[0] = 2
        readings.doom(0, late, "too late", leaves=False)
        signal.raise_signal(reading.SIGNAL)
        with pytest.raises(DataStuck, match="too late"):
            readings.doom(0, readings.now()[0], "too late", leaves=False)


def test_the_time_of_a_sample_that_is_read_alone_does_not_begin_with_that_of_its_batch() -> None:
    reads: list[tuple[int, int]] = []

    class Together(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitems__(self, indices: list[int]) -> list[int]:
            reads.append(made.readings.now()[0].read)
            raise ValueError("one of them can't be read")

        def __getitem__(self, index: int) -> int:
            reads.append(made.readings.now()[0].read)
            return index

    made = Loader(Together(), LoaderSettings(seed=0), collate=None, device=CPU)
    with contextlib.closing(made):
        made.batch([2, 3], 0)
    assert len(reads) == len(set(reads)) == 3


def test_an_answer_that_is_lost_ends_the_wait_for_it() -> None:
    readings = Readings(processes=1)
    watched = Watched(readings)

    def look() -> None:
        eventually(lambda: readings.now()[0].busy)
        watched.look_until(1001 + LIMIT + 5)

    threading.Thread(target=look, daemon=True).start()
    with pytest.raises(DataStuck, match="too many open files"), readings.of(0, PROCESSES):
        threading.Event().wait(PATIENCE_SECONDS)


def test_a_read_that_no_signal_interrupts_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, codes = Readings(), list[int]()
    watched = Watched(readings)
    signal.signal(reading.SIGNAL, signal.SIG_IGN)
    monkeypatch.setattr(os, "_exit", codes.append)
    with readings.of(7, DATASET):
        watched.look_until(1001 + LIMIT + 10)
        assert not codes
        watched.look_until(1001 + LIMIT + 11)
    assert codes == [1]
    assert "sample 7 of the dataset" in watched.events()[-1]["reason"]


def test_without_a_limit_a_read_may_take_any_time() -> None:
    readings = Readings()
    watched = Watched(readings, limit=0)
    with readings.of(7, DATASET):
        watched.look_until(1001 + 10 * LIMIT)
    assert [each["event"] for each in watched.events()] == ["data_late"]


def test_time_in_which_the_process_was_frozen_is_not_that_of_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It also doesn't count as the time after which a process ends that goes on with a read that was ended."""
    readings, codes = Readings(), list[int]()
    watched = Watched(readings)
    monkeypatch.setattr(os, "_exit", codes.append)
    with readings.of(7, DATASET):
        watched.look_until(1010)
        watched.now += 10 * LIMIT
        watched.look_until(watched.now + LIMIT - 20)
        signal.signal(reading.SIGNAL, signal.SIG_IGN)
        watched.look_until(watched.now + 15)
        watched.now += 10 * LIMIT
        watched.look_until(watched.now + 1)
    assert not codes


def test_the_file_is_that_which_a_process_opens_or_reads(pipe: Path) -> None:
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.DEVNULL) as process:
        eventually(lambda: waits_for(process.pid) == str(pipe))
        with pipe.open("wb"):
            eventually(lambda: waits_for(process.pid) == str(pipe))
    assert waits_for(process.pid) is None


@pytest.fixture
def few_files() -> Iterator[Callable[[], int]]:
    """Lower the limit of open files. Yield a function that returns it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Parts(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.full((1,), index) for _ in range(300)]


def test_batches_of_many_tensors_do_not_fail_for_the_limit_of_open_files(few_files: Callable[[], int]) -> None:
    loader = Loader(Parts(), LoaderSettings(seed=0, workers=1), collate=None, device=CPU)
    try:
        assert few_files() > 256
        loader.start(Place(Cursor(), rank=0, size=1, batch_size=2, epochs=1))
        assert [sorted(part.tolist()) for part in loader.next().micro[0].batch] == [[[0], [1]]] * 300
    finally:
        loader.close()
