"""A stream that keeps samples where its state doesn't show them is refused, however long that goes well."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.elastic.data.stream.test_stream import Lines, opened
from tidewater.elastic.data import stream
from tidewater.elastic.errors import ConfigError


class Buffered(Lines):
    """Draws from a buffer. Its state is the last place at which the buffer was empty, and the samples since then.

    So it continues until the buffer is filled again, and then loses what was left in it: like a Hugging Face stream.
    """

    def __init__(self, total: int, size: int) -> None:
        super().__init__(total)
        self._size, self._filled, self._since = size, 0, 0

    def __iter__(self) -> Iterator[Any]:
        chance, skipped = random.Random(7), self._since
        buffer, place = [], self._filled
        for place in range(self._filled, self._total):
            buffer.append(place)
            if len(buffer) >= self._size:
                chance.shuffle(buffer)
                while len(buffer) > self._size // 2:
                    number = buffer.pop()
                    if skipped:
                        skipped -= 1
                        continue
                    self._since += 1
                    yield number
                self._filled, self._since = place + 1, 0
        yield from buffer

    def state_dict(self) -> dict[str, Any]:
        return {"filled": self._filled, "since": self._since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._filled, self._since = state["filled"], state["since"]


@pytest.mark.parametrize(("total", "size"), [(5000, 1000), (5000, 2000), (400, 100)])
def test_a_stream_that_loses_what_is_in_its_buffer_is_refused(total: int, size: int) -> None:
    with pytest.raises(ConfigError, match=r"Buffered, doesn't continue where its state_dict\(\) says.* in a buffer"):
        opened(Buffered(total, size))


class Counted(Lines):
    """Each sample is its number."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(self._next, self._total):
            self._next = number + 1
            self.read.append(number)
            yield number


def test_a_long_stream_that_continues_is_accepted_after_some_thousand_samples_or_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = Counted(10_000)
    opened(lines)
    assert 2048 < len(lines.read) < 3000
    monkeypatch.setattr(stream, "_FAR_SECONDS", 0.0)
    lines = Counted(10_000)
    opened(lines)
    assert len(lines.read) < 100
