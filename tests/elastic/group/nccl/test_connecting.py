"""NCCL's connecting may fail, or never return, and no survivor waits for that."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from tests.elastic.alone import form_alone, opened_alone
from tests.elastic.group.nccl.double import Communicator, Device, Double, Double2, OnCpus
from tests.elastic.group.nccl.pair import pair
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import DeviceFailed, GroupBroken
from tidewater.elastic.group import nccl
from tidewater.elastic.group.group import Group

CPU = torch.device("cpu")
SOON, LATE = 0.3, 20.0


@pytest.fixture(params=[Double, Double2])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OnCpus:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    made: OnCpus = request.param(CPU, LATE)
    return made


@pytest.fixture
def stream(backend: OnCpus) -> Device:
    return backend.stream


@pytest.fixture
def group(backend: OnCpus) -> Iterator[Group]:
    for group in opened_alone(lambda *_: Group(backend)):
        form_alone(group)
        yield group


def abandoned(group: Group, stream: Device) -> None:
    """Form a group that a peer leaves while the others connect."""
    stream.connecting = "hangs"
    stream.reached.clear()

    def lost() -> None:
        if stream.reached.is_set():
            raise GroupBroken("lost b")

    with pytest.raises(GroupBroken, match="lost b"):
        form(group, peers_are_there=lost)
    stream.connecting = ""


def form(group: Group, seconds: float = LATE, peers_are_there: Callable[[], None] = lambda: None) -> None:
    addresses = (Address("127.0.0.1", 0),)
    group.form(secrets.randbits(40), 0, addresses, time.monotonic() + seconds, peers_are_there=peers_are_there)


def test_a_peer_that_is_lost_while_connecting_holds_no_survivor(group: Group, stream: Device) -> None:
    abandoned(group, stream)
    form_alone(group)
    assert group.tally([7.0]) == [7.0]


def test_connecting_is_given_up_at_the_deadline(group: Group, stream: Device) -> None:
    stream.connecting = "hangs"
    with pytest.raises(GroupBroken, match="did not connect by NCCL in time: the attempt is abandoned"):
        form(group, SOON)


def test_what_was_abandoned_is_aborted_when_it_returns(
    group: Group, backend: OnCpus, stream: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    communicators: list[Communicator] = []
    make = backend._communicator

    def note() -> Communicator:
        communicators.append(make())
        return communicators[-1]

    monkeypatch.setattr(backend, "_communicator", note)
    abandoned(group, stream)
    (connecting,) = communicators
    form_alone(group)
    assert backend._attempts.pending() == 1
    stream.release()
    backend._attempts.join(LATE)
    assert backend._attempts.pending() == 0
    with pytest.raises(RuntimeError, match="was aborted"):
        connecting.allreduce(torch.ones(1))
    assert group.tally([7.0]) == [7.0]


def test_a_process_in_which_nothing_that_connects_returns_ends(group: Group, stream: Device) -> None:
    for _ in range(nccl._MOST_ABANDONED + 1):
        abandoned(group, stream)
    with pytest.raises(DeviceFailed, match="has not returned from 5 attempts to connect"):
        form_alone(group)


def test_survivors_of_a_failed_connect_meet_again(backend: OnCpus) -> None:
    backends = [backend, type(backend)(CPU, LATE)]
    with pair(backends) as both:
        for connecting in ("", "fails", "fails", ""):
            for each in backends:
                each.stream.connecting = connecting
            errors = both.form()
            assert all("ncclSystemError" in error if connecting else not error for error in errors), errors
