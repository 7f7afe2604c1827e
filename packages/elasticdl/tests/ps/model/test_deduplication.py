"""Each minibatch is counted once, in bounded memory."""

from __future__ import annotations

import pytest
from elasticdl.errors import InputError
from elasticdl.ps.model.deduplication import PROCESSES, WINDOW, Counted, Minibatch


def test_the_same_number_of_another_process_is_another_minibatch() -> None:
    counted = Counted()
    counted.add(Minibatch("worker-0", "a", 1))
    assert counted.has(Minibatch("worker-0", "a", 1))
    assert not counted.has(Minibatch("worker-0", "b", 1))
    assert not counted.has(Minibatch("worker-1", "a", 1))


def test_numbers_may_come_out_of_order() -> None:
    counted = Counted()
    counted.add(Minibatch("w", "a", 7))
    assert not counted.has(Minibatch("w", "a", 6))
    counted.add(Minibatch("w", "a", 6))
    assert counted.has(Minibatch("w", "a", 6))


def test_memory_is_bounded_and_what_is_forgotten_counts_as_counted() -> None:
    counted = Counted()
    for number in range(10 * WINDOW):
        assert not counted.has(Minibatch("w", "a", number))
        counted.add(Minibatch("w", "a", number))
    assert counted.has(Minibatch("w", "a", 0))
    assert len(counted.to_json()) < 20 * WINDOW
    for process in range(2 * PROCESSES):
        counted.add(Minibatch("w", str(process), 1))
    assert len(counted._numbers) == PROCESSES
    assert counted.has(Minibatch("w", str(2 * PROCESSES - 1), 1))


def test_a_checkpoint_holds_what_was_counted_and_applied() -> None:
    counted = Counted()
    applied, waiting = Minibatch("w", "a", 1), Minibatch("w", "a", 2)
    counted.add(applied)
    counted.add(waiting)
    restored = Counted.from_json(counted.to_json(frozenset({waiting})))
    assert restored.has(applied)
    assert not restored.has(waiting)


def test_another_text_is_refused() -> None:
    with pytest.raises(InputError, match="lists no minibatches"):
        Counted.from_json('{"a": 1}')
