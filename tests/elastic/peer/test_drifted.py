"""What follows from different states: the state of the majority, or an end with a sentence that names causes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.elastic.session.handover.test_handover import A, B, Ranks, at
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import Drifted, GroupBroken
from tidewater.elastic.membership.rules import Generation, Member
from tidewater.elastic.observe.log import Log
from tidewater.elastic.peer import drift
from tidewater.elastic.peer.outline import Outline
from tidewater.elastic.session.handover import Exchange, synchronise

NONE = frozenset[str]()
C = Member("c", "c", "127.0.0.1", 1, "signature", 0)
THREE = Generation(6, 9, (A, B, C), "lost")
AFTER_100 = [1.0, 4.0, 101.0, 1.0, 0.0, 0.0, 0.0, 1.0]
LEFT_BEHIND = [1.0, 4.0, 101.0, 0.0, 0.0, 0.0, 0.0, 1.0]
"""The same state, of a rank that missed a generation."""


class Suspecting:
    """The third of three ranks, which suspects that the states differ; the others' checksums are given.

    Each state is one tensor, so that its checksum is that of the state.
    """

    def __init__(
        self, *others: int, here: int, stale: int | None = None, processor: int = 0, buffers: frozenset[str] = NONE
    ) -> None:
        self.group = Ranks(
            [[*(LEFT_BEHIND if rank == stale else AFTER_100), 0.0] for rank in range(len(others))],
            [[*divmod(each, 2**32), 1, processor or drift.processor(Ranks.device)] for each in others],
            [[*divmod(each, 2**32)] for each in others],
        )
        value = torch.tensor([float(here)], dtype=torch.float64)
        self.state = SimpleNamespace(
            position=lambda lineage: at(4, 101, 1),
            suspect=True,
            present=True,
            pending=None,
            step=100,
            micro_batch=0,
            repairs=0,
            named_tensors=lambda: {"model/weight": value},
            buffer_names=buffers,
            load=None,
        )
        self.events: list[tuple[str, object]] = []
        self.differences: list[object] = []
        self.synced: list[int] = []
        self.worker: Any = SimpleNamespace(
            group=self.group,
            state=self.state,
            checkpoints=SimpleNamespace(before=lambda step: 80 if step >= 80 else 0),
            coordinator=SimpleNamespace(synced=self.synced.append),
            server=SimpleNamespace(withdraw=lambda: None, identity=None),
        )

    def synchronise(self, monkeypatch: pytest.MonkeyPatch, policy: str) -> list[str]:
        """Return the hosts from which a state was fetched."""
        fetched: list[str] = []

        def fetch(identity: object, address: Address, *_: object) -> Outline:
            fetched.append(address.host)
            return Outline.of({})[0]

        def adopt(*_: object) -> None:
            self.state.present = True

        monkeypatch.setattr("tidewater.elastic.session.handover.server.fetch", fetch)
        monkeypatch.setattr("tidewater.elastic.session.handover.broadcast.run", lambda *_: None)

        def heard(name: str, fields: Mapping[str, object]) -> None:
            self.events.append((name, fields.get("workers")))
            self.differences.append(fields.get("difference"))

        log = Log("c", listener=heard)
        members = (A, B, C) if len(self.group._tables[0]) == 2 else (A, C)
        generation = replace(THREE, members=members)
        synchronise(self.worker, generation, len(members) - 1, Exchange(lambda: None, adopt, policy, 10), log)
        return fetched


def sum_of(value: int) -> int:
    """Return the checksum of a state of that one number."""
    return int(drift.checksum([torch.tensor([float(value)], dtype=torch.float64)], Ranks.device)) % 2**64


def test_a_rank_that_differs_from_the_majority_gets_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    third = Suspecting(sum_of(5), sum_of(5), here=6)
    assert third.synchronise(monkeypatch, "mend") == [A.host]
    assert ("drifted", "c") in third.events
    assert third.synced == [0], "it must not pass for a member that has the state"
    assert not third.state.suspect
    assert third.differences[0] == "1 of 1 tensors, first model/weight"


def test_a_rank_that_differs_in_one_comparison_after_the_other_ends_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for repairs in range(drift.MOST_REPAIRS - 1):
        third = Suspecting(sum_of(5), sum_of(5), here=6)
        third.state.repairs = repairs
        assert third.synchronise(monkeypatch, "mend") == [A.host]
        assert third.state.repairs == repairs + 1
    last = Suspecting(sum_of(5), sum_of(5), here=6)
    last.state.repairs = drift.MOST_REPAIRS - 1
    with pytest.raises(Drifted, match=f"the state of c has differed .* in {drift.MOST_REPAIRS} comparisons"):
        last.synchronise(monkeypatch, "mend")
    assert last.synced == [0]
    other = Suspecting(sum_of(6), sum_of(5), here=5)  # the one that differs is another one
    other.state.repairs = drift.MOST_REPAIRS - 1
    other.synchronise(monkeypatch, "mend")
    assert other.state.repairs == 0


@pytest.mark.parametrize(
    ("found", "says", "not_said"),
    [
        (
            {},
            "before_step or the optimizer.*a faulty GPU there .1 of 1 tensors, first model/weight",
            "kinds",
        ),
        ({"processor": 7}, "different kinds of processors", "faulty"),
        ({"buffers": frozenset({"model/weight"})}, "change a buffer only in forward passes", "faulty"),
    ],
    ids=["neither", "processors", "buffers"],
)
def test_hardware_is_blamed_only_if_other_causes_are_excluded(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], says: str, not_said: str
) -> None:
    third = Suspecting(sum_of(5), sum_of(5), here=6, **found)
    with pytest.raises(Drifted, match=says) as error:
        third.synchronise(monkeypatch, "stop")
    assert not_said not in str(error.value)


def test_a_rank_that_missed_a_generation_has_a_vote_if_its_state_is_as_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood still for a moment after the comparison. Without its vote the other two would have no majority."""
    third = Suspecting(sum_of(5), sum_of(5), here=6, stale=1)
    assert third.synchronise(monkeypatch, "mend") == [A.host]
    assert ("drifted", "c") in third.events


def test_of_two_that_differ_both_are_named_although_one_missed_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    second = Suspecting(sum_of(5), here=6, stale=0)
    with pytest.raises(Drifted, match="the states of a, c differ, and no majority"):
        second.synchronise(monkeypatch, "mend")


def test_all_ranks_compare_again_if_the_exchange_of_the_checksums_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that was interrupted before it saw the difference learns of it here; those that saw it may be lost now."""
    third = Suspecting(sum_of(5), sum_of(5), here=5)
    third.state.suspect = False
    third.group._tables = [[[*AFTER_100, 1.0], [*AFTER_100, 0.0]]]
    with pytest.raises(GroupBroken):
        third.synchronise(monkeypatch, "mend")
    assert third.state.suspect


def test_ranks_that_are_equal_after_all_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    third = Suspecting(sum_of(5), sum_of(5), here=5)
    third.state.repairs = 2
    assert third.synchronise(monkeypatch, "stop") == []
    assert third.events == []
    assert not third.state.suspect
    assert third.state.repairs == 0


@pytest.mark.parametrize(
    ("others", "policy", "says"),
    [
        ((5, 5), "stop", "the state of c differs from that of the other workers.*checkpoint before is that of step 80"),
        ((5, 7), "mend", "the states of a, b, c differ, and no majority"),
        ((5,), "mend", "the states of a, c differ, and no majority"),
    ],
    ids=["policy", "three differ", "two differ"],
)
def test_all_ranks_stop_together_where_nobody_may_or_can_be_mended(
    monkeypatch: pytest.MonkeyPatch, others: tuple[int, ...], policy: str, says: str
) -> None:
    third = Suspecting(*map(sum_of, others), here=6)
    with pytest.raises(Drifted, match=says):
        third.synchronise(monkeypatch, policy)
    assert third.group.confirmed == 1, "no rank may end before all know why"
