"""A group is formed again whatever became of the attempt before."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from tests.elastic.alone import opened_alone
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group import backend, gloo
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.rendezvous import MeetingStore

CPU = torch.device("cpu")


@pytest.fixture(params=[gloo.Reconfigured, gloo.Restarted])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    yield from opened_alone(lambda *_: Group(request.param(CPU, 60.0)))


def form(group: Group, size: int = 1) -> None:
    addresses = (Address("127.0.0.1", 0),) * size
    group.form(secrets.randbits(48), 0, addresses, time.monotonic() + 60)


def test_ranks_meet_under_the_same_names_after_one_of_them_could_not_connect(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    write = MeetingStore.set

    def note(store: MeetingStore, key: str, value: Any) -> None:
        names.append(key.split("/")[0])
        write(store, key, value)

    def lost(*_: object) -> bytes:
        raise GroupBroken("lost b")

    form(group)
    monkeypatch.setattr(MeetingStore, "set", note)
    form(group)
    usual = sorted(names)
    with monkeypatch.context() as patch:
        patch.setattr(MeetingStore, "assemble", lambda *_: None)  # the peer was there, and is gone now
        patch.setattr(MeetingStore, "get", lost)
        patch.setattr(MeetingStore, "wait", lost)
        with pytest.raises(GroupBroken, match="lost b"):
            form(group, size=2)
    names.clear()
    form(group)
    assert sorted(names) == usual


@pytest.fixture
def severed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of connections that were ended, one at a time: as if there were one to a peer."""
    found: list[int] = []

    def sever(_: object) -> int:
        found.append(1)
        return 1

    monkeypatch.setattr(gloo, "sever", sever)
    return found


def test_the_connections_of_a_generation_are_ended_once(group: Group, severed: list[int]) -> None:
    """A loss is noticed by several threads, and to find the connections all descriptors have to be looked at."""
    for generation in (1, 2):
        form(group)
        for reason in ("lost b", "no answer from b", "no further step is possible with b"):
            group.interrupt(reason)
        assert len(severed) == generation


def test_what_connects_after_an_interruption_is_ended_by_the_next_one(
    group: Group, severed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reconfigures = isinstance(group._backend, gloo.Reconfigured)
    owner, last = (backend, "reconfigure") if reconfigures else (gloo.Gloo, "_exchange")
    connect = getattr(owner, last)

    def interrupted(*given: Any) -> Any:
        found = connect(*given)
        group.interrupt("lost b")
        return found

    monkeypatch.setattr(owner, last, interrupted)
    form(group)
    assert len(severed) == 1
    group.interrupt("lost b")
    group.interrupt("lost b")
    assert len(severed) == 2


def test_the_default_group_of_the_script_is_usable_after_a_loss_and_after_the_end(group: Group) -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        own: Any = dist.new_group([0])
        for lost in (False, True, True):
            form(group)
            assert group.tally([7.0]) == [7.0]
            if lost:
                group.interrupt("lost b")
        group.close()
        for each in (None, own):
            ones = torch.ones(3)
            dist.all_reduce(ones, group=each)
            assert ones.tolist() == [1.0] * 3
    finally:
        dist.destroy_process_group()
