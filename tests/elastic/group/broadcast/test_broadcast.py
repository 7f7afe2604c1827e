"""Tensors of one rank arrive in those of others at once; what fails changes nothing in a rank that keeps its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.elastic.group.broadcast.in_threads import Ranks, several
from tests.elastic.group.kinds import KINDS
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group import broadcast
from tidewater.elastic.group.broadcast import run, size_of, split
from tidewater.elastic.group.group import Group
from tidewater.elastic.peer.outline import Outline

SMALL = 64
"""Bytes of a chunk in these tests."""
SOURCE, HOLDER, NEWCOMER, ANOTHER = range(4)
CPU = torch.device("cpu")


def values() -> list[torch.Tensor]:
    """Return tensors of all kinds: small ones and large ones, that fill whole chunks and that don't."""
    torch.manual_seed(0)
    return [
        torch.randn(40),
        torch.tensor(3),
        torch.randn(7, dtype=torch.complex64),
        torch.tensor([True, False, True]),
        torch.empty(0, 4),
        torch.randn(3, 5).half(),
        torch.randn(16).bfloat16(),
        torch.arange(2 * SMALL // 8),
        torch.tensor([float("nan"), -0.0, 1e-45]),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(12).view(3, 4)[:, ::2],
        torch.ones(1, 40).expand(3, 40),
        torch.arange(10, dtype=torch.uint8)[5:],
        torch.randn(3, 50).t(),
        torch.randn(33)[1:],
    ]


def empty(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors into which these can be received."""
    outline, _ = Outline.of(tensors)
    return [layout.empty(CPU) for layout in outline.layouts.values()]


def bits(tensors: list[torch.Tensor]) -> list[list[int]]:
    return [broadcast.memory(tensor).tolist() for tensor in tensors]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "CHUNK", SMALL)


@pytest.fixture(params=KINDS)
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    with several(request.param, 4) as ranks:
        yield ranks


class Broadcast:
    """A source, a rank that keeps its own tensors, and two newcomers."""

    def __init__(self, ranks: Ranks, tensors: list[torch.Tensor]) -> None:
        self.ranks, self.source, self.holder = ranks, tensors, [tensor.clone() for tensor in tensors]
        self.newcomers = {NEWCOMER: empty(tensors), ANOTHER: empty(tensors)}

    def run(self, rank: int, check: Callable[[], None] = lambda: None) -> None:
        mine = {SOURCE: self.source, **self.newcomers}.get(rank)
        run(self.ranks.groups[rank], SOURCE, size_of(self.source), mine, check)

    def confirmed(self, rank: int) -> None:
        self.run(rank)
        self.ranks.groups[rank].confirm()

    def assert_arrived(self) -> None:
        for tensors in self.newcomers.values():
            assert bits(tensors) == bits(self.source)


def test_tensors_of_any_kind_arrive_bit_for_bit(ranks: Ranks) -> None:
    ranks.form()
    made = Broadcast(ranks, values())
    ranks.all(made.run)
    made.assert_arrived()


def test_tensors_of_any_size_arrive_bit_for_bit() -> None:
    with several("reconfigured", 4) as ranks:
        ranks.form()
        for size in (0, 1, SMALL - 8, SMALL - 1, SMALL, SMALL + 1, 2 * SMALL):
            made = Broadcast(ranks, [torch.arange(size, dtype=torch.uint8)] if size else [])
            ranks.all(made.run)
            made.assert_arrived()


def test_two_newcomers_get_one_broadcast(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    with several("reconfigured", 4) as ranks:
        ranks.form()
        for rank, group in enumerate(ranks.groups):
            monkeypatch.setattr(group, "broadcast", _noted(begun, rank, group.broadcast))
        made = Broadcast(ranks, values())
        ranks.all(made.run)
    each = size_of(made.source) // SMALL + 1
    assert [begun.count(rank) for rank in range(4)] == [each] * 4


def _noted(begun: list[int], rank: int, begin: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*given: Any) -> Any:
        begun.append(rank)
        return begin(*given)

    return noted


def interrupt_at(group: Group, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this rank fail when it begins with the chunk of this number."""
    begin, left = group.broadcast, [number]

    @functools.wraps(begin)
    def failing(*given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            group.interrupt("it is lost")
        return begin(*given)

    monkeypatch.setattr(group, "broadcast", failing)


@pytest.mark.parametrize("lost", [SOURCE, HOLDER, NEWCOMER], ids=["source", "holder", "newcomer"])
def test_a_rank_that_is_lost_at_any_chunk_changes_nothing_in_those_that_have_the_tensors(
    ranks: Ranks, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Broadcast(ranks, [torch.randn(40), torch.arange(5), torch.randn(17)])
    before = bits(made.source)
    for number in range(size_of(made.source) // SMALL + 1):
        ranks.form()
        with monkeypatch.context() as patch:
            interrupt_at(ranks.groups[lost], number, patch)
            assert all(isinstance(end, GroupBroken) for end in ranks.ends(made.confirmed))
        assert bits(made.source) == bits(made.holder) == before
    ranks.form()
    ranks.all(made.run)
    made.assert_arrived()


def test_a_rank_that_gives_up_between_chunks_leaves_no_work_that_still_writes(ranks: Ranks) -> None:
    def give_up() -> None:
        raise GroupBroken("there is a newer generation")

    ranks.form()
    made = Broadcast(ranks, values())
    ends = ranks.ends(lambda rank: made.run(rank, give_up if rank == NEWCOMER else lambda: None))
    assert isinstance(ends[NEWCOMER], GroupBroken)
    assert "newer generation" in str(ends[NEWCOMER])
    ranks.form()
    for tensor in made.newcomers[NEWCOMER]:
        tensor.zero_()
    ranks.all(lambda rank: ranks.groups[rank].confirm())
    assert not any(any(each) for each in bits(made.newcomers[NEWCOMER]))


@pytest.mark.parametrize("chunk", [0, 3, -1], ids=["first", "in the middle", "last"])
def test_what_arrives_with_a_flipped_bit_is_not_used(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with several("reconfigured", 4) as ranks:
        ranks.form()
        made = Broadcast(ranks, values())
        group, begun = ranks.groups[NEWCOMER], list[torch.Tensor]()
        flipped = range(size_of(made.source) // SMALL + 1)[chunk]
        begin, complete = group.broadcast, group.complete

        def note(tensor: torch.Tensor, source: int) -> Any:
            begun.append(tensor)
            return begin(tensor, source)

        def flip(works: Any) -> None:
            complete(works)
            completed.append(len(completed))
            if completed[-1] == flipped:
                begun[flipped][0] ^= 1

        completed: list[int] = []
        monkeypatch.setattr(group, "broadcast", note)
        monkeypatch.setattr(group, "complete", flip)
        ends = ranks.ends(made.run)
    assert isinstance(ends[NEWCOMER], GroupBroken)
    assert "does not match its checksum" in str(ends[NEWCOMER])


def test_what_another_generation_has_sent_is_not_used() -> None:
    with several("reconfigured", 4) as ranks:
        ranks.form()
        made = Broadcast(ranks, values())
        ranks.groups[NEWCOMER].uuid += 1
        ends = ranks.ends(made.run)
    assert "does not match its checksum" in str(ends[NEWCOMER])


def test_parts_on_another_device_are_copied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is not needed for it: only the memory in between differs."""
    monkeypatch.setattr(broadcast, "_near", lambda data, parts: torch.empty_like(data))
    with several("reconfigured", 4) as ranks:
        ranks.form()
        made = Broadcast(ranks, values())
        ranks.all(made.run)
        made.assert_arrived()


def test_all_chunks_but_the_last_have_the_same_size_and_first_come_those_within_one_tensor() -> None:
    assert list(split([3, 0, 4, 12], 10)) == [[(3, 0, 10)], [(0, 0, 3), (2, 0, 4), (3, 10, 12)]]
    assert list(split([6, 7], 5)) == [[(0, 0, 5)], [(1, 0, 5)], [(0, 5, 6), (1, 5, 7)]]
    assert list(split([4, 4, 4], 5)) == [[(0, 0, 4), (1, 0, 1)], [(1, 1, 4), (2, 0, 2)], [(2, 2, 4)]]
    assert list(split([], 10)) == []
