"""The minibatches of a task, read and fed ahead by a thread while the previous one is computed.

with Ahead(minibatches(exactly(reader, shard), 64, feed), ahead=2) as batches:
    for batch in batches:
        ...
"""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from elasticdl.data.reader import Record
from elasticdl.zoo.spec import Batch

T = TypeVar("T")

AHEAD = 2
"""Minibatches that wait while one is computed: enough for a reader that is sometimes slow."""


@dataclass(frozen=True)
class Minibatch:
    """What `feed` made of some records."""

    batch: Batch
    records: int


def minibatches(task: Iterator[Record], size: int, feed: Callable[[Sequence[Record]], Batch]) -> Iterator[Minibatch]:
    """Yield minibatches of `size` records; the last one has what is left."""
    while chosen := list(itertools.islice(task, size)):
        yield Minibatch(feed(chosen), len(chosen))


class Ahead(Generic[T]):
    """Takes items from an iterator in a thread, some ahead. An error of the iterator comes after the items before it.

    It is a context manager, because the thread must end when the rest isn't wanted.
    """

    def __init__(self, source: Iterator[T], ahead: int = AHEAD) -> None:
        self._source, self._ahead = source, ahead
        self._items: collections.deque[T] = collections.deque()
        self._error: BaseException | None = None
        self._ended = False
        self._unwanted = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread after the item that it is reading; what it has read ahead is discarded."""
        with self._changed:
            self._unwanted = True
            self._changed.notify_all()
        self._thread.join()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._ended)
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._source:
                if not self._take(item):
                    return
        except BaseException as caught:  # any error of a reader or of a feed belongs to the thread that computes
            error = caught
        finally:
            with self._changed:
                self._error, self._ended = error, True
                self._changed.notify_all()

    def _take(self, item: T) -> bool:
        """Keep an item as soon as there is room; return whether more is wanted."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._items) < self._ahead or self._unwanted)
            return not self._unwanted
