"""A reason to end interrupts every wait, also when it comes from a handler of a signal in the waiting thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from elasticdl.worker.ending import Ending, Leaving, Stopped


@pytest.fixture
def usr1() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_without_a_reason_a_wait_ends_by_itself_and_a_check_passes() -> None:
    ending = Ending()
    ending.wait(0.01)
    ending.check()


@pytest.mark.usefixtures("usr1")
def test_a_signal_ends_the_wait_of_the_thread_that_handles_it() -> None:
    ending = Ending()
    signal.signal(signal.SIGUSR1, lambda *_: ending.leave())
    killer = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
    killer.start()
    with pytest.raises(Leaving):
        ending.wait(60)
    killer.join()
    assert ending.leaving


def test_another_thread_ends_the_wait() -> None:
    ending = Ending()
    stopper = threading.Thread(target=ending.stop)
    stopper.start()
    with pytest.raises(Stopped):
        ending.wait(60)
    stopper.join()


def test_the_first_reason_stays() -> None:
    ending = Ending()
    ending.stop()
    ending.leave()
    assert not ending.leaving
    for _ in range(2):
        with pytest.raises(Stopped):
            ending.check()
