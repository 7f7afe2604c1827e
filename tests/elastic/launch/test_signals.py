"""A worker that gets a signal leaves as planned, whatever handlers its script has set. Afterwards they are back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes import eventually
from tidewater.contract import exit_codes, leaving
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.launch.signals import signals
from tidewater.elastic.session import assembly

REPOSITORY = Path(__file__).parents[3]
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Begin as a worker in a pod does, and put the handlers of the tests' own process back.

    A shell that is not interactive ignores SIGINT in what it runs in the background, which may be these tests.
    """
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[None]:
    """Replace all of a worker but its signals. Return what gets an entry when the session is asked to leave."""
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    session = SimpleNamespace(leave=lambda: asked.put(None), flush_until=lambda: 0.0)

    class Assembled:
        def __init__(self, *_: object) -> None:
            self.is_finished = lambda: False
            self.learn_secret = lambda wanted: True
            self.give_up = lambda: None
            self.announce = self.prepared = self.close = lambda _: None

        def session(self, prepare: Callable[[Any], object]) -> Any:
            prepare(None)
            return session

    monkeypatch.setattr(assembly, "_Assembly", Assembled)
    monkeypatch.setattr(assembly, "open_metrics", lambda *_, **__: SimpleNamespace(event=lambda *_: None))
    return asked


CONFIG: Any = SimpleNamespace(metrics_port=0, job="job", worker="a", process="a", debug=False, etcd=(), limit=None)


def test_a_process_with_more_than_a_thousand_open_files_waits_for_each_of_them() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(4096, limits[1])), limits[1]))
    reader, writer = os.pipe()
    late = fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, 1100)
    try:
        with signals(signal.SIGCHLD) as wait:
            assert wait(time.monotonic(), [late]) == (b"", [])
            os.write(writer, b"x")
            assert wait(None, [late]) == (b"", [late])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in (reader, writer, late):
            os.close(each)


@pytest.mark.parametrize("own", [True, False], ids=["with-a-handler-of-the-script", "without"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_the_worker_leave(left: queue.SimpleQueue[None], number: signal.Signals, own: bool) -> None:
    def prepare(_: Any) -> Any:
        if own:
            signal.signal(number, lambda *_: None)

    with assembly.open_session(CONFIG, prepare) as opened:
        opened.join()
        signal.raise_signal(number)
        eventually(lambda: not left.empty())


@pytest.mark.parametrize("number", SIGNALS)
def test_a_worker_that_is_asked_to_leave_in_its_rehearsal_does_not_join(
    left: queue.SimpleQueue[None], number: signal.Signals
) -> None:
    with assembly.open_session(CONFIG, lambda _: None) as opened:  # type: ignore[arg-type,return-value]
        signal.raise_signal(number)
        with pytest.raises(assembly.Ended) as ended:
            opened.join()
    assert ended.value.code == exit_codes.LEFT
    assert left.empty()


def test_a_second_interrupt_ends_the_worker_at_once(left: queue.SimpleQueue[None]) -> None:
    with assembly.open_session(CONFIG, lambda _: None):  # type: ignore[arg-type,return-value]
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_hangup_that_nohup_ignores_stays_ignored(left: queue.SimpleQueue[None]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with assembly.open_session(CONFIG, lambda _: None):  # type: ignore[arg-type,return-value]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("how", ["at-its-end", "refused", "finished"])
def test_after_the_session_signals_have_the_handlers_that_the_script_had(
    left: queue.SimpleQueue[None], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def own(*_: object) -> None:
        pass

    def prepare(_: Any) -> Any:
        signal.signal(signal.SIGHUP, own)
        if how == "refused":
            raise ConfigError("no data")

    signal.signal(signal.SIGTERM, own)
    if how == "finished":
        usual: Any = assembly._Assembly

        def finished(*given: object) -> Any:
            made = usual(*given)
            made.is_finished = lambda: True
            return made

        monkeypatch.setattr(assembly, "_Assembly", finished)
    expected: Any = contextlib.nullcontext() if how == "at-its-end" else pytest.raises((ConfigError, assembly.Ended))
    with expected, assembly.open_session(CONFIG, prepare):
        signal.raise_signal(signal.SIGINT)
    after = [signal.getsignal(number) for number in SIGNALS]
    assert after == [own, signal.default_int_handler, signal.SIG_DFL if how == "finished" else own]


STUCK = """
import os, queue, signal, time
from tidewater.contract import leaving
from tidewater.elastic.launch.signals import asked_by_signals

leaving.LAST_SECONDS = 0.2

def read_a_file_that_blocks():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(120)

with asked_by_signals(queue.SimpleQueue()):
    read_a_file_that_blocks()
"""


def test_a_worker_that_is_stuck_ends_some_time_after_a_signal_and_says_where_it_was() -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == exit_codes.FAILED
    assert "in read_a_file_that_blocks" in ended.stderr


def test_the_last_limit_of_a_worker_that_leaves_is_before_the_end_of_its_pod() -> None:
    assert leaving.STEP_SECONDS + leaving.FLUSH_SECONDS < leaving.LAST_SECONDS < leaving.GRACE_SECONDS
