"""A call that can't be interrupted ends in a thread when no thread waits for it any more, and leaves nothing behind."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tidewater.elastic.group.attempts import Attempts

SECONDS = 20.0


class Lost(Exception):
    pass


def lost() -> None:
    raise Lost


def fails() -> None:
    raise RuntimeError("refused")


def never() -> None: ...


def test_it_returns_what_the_call_returns_and_raises_what_it_raises() -> None:
    discarded: list[object] = []
    attempts = Attempts(discarded.append)
    assert attempts.make(lambda: "made", never) == "made"
    with pytest.raises(RuntimeError, match="refused"):
        attempts.make(fails, never)
    assert attempts.pending() == 0
    assert discarded == []


@pytest.mark.parametrize("ends", [lambda: "made", fails])
def test_what_an_abandoned_call_makes_at_last_is_discarded(ends: object) -> None:
    discarded: list[object] = []
    attempts, go_on = Attempts(discarded.append), threading.Event()

    def call() -> object:
        go_on.wait()
        return ends()  # type: ignore[operator]

    with pytest.raises(Lost):
        attempts.make(call, lost)
    assert attempts.pending() == 1
    go_on.set()
    attempts.join(SECONDS)
    assert attempts.pending() == 0
    assert discarded == ([] if ends is fails else ["made"])


def test_all_abandoned_calls_together_are_waited_for_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, go_on = Attempts(lambda made: None), threading.Event()
    for _ in range(3):
        with pytest.raises(Lost):
            attempts.make(go_on.wait, lost)
    clock = [100.0]

    def waits(thread: threading.Thread, seconds: float) -> None:
        clock[0] += seconds

    with monkeypatch.context() as patch:
        patch.setattr("tidewater.elastic.group.attempts.time", SimpleNamespace(monotonic=lambda: clock[0]))
        patch.setattr(threading.Thread, "join", waits)
        attempts.join(SECONDS)
    assert clock == [100.0 + SECONDS]
    go_on.set()
