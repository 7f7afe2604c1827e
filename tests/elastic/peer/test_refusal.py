"""A state that can't be sent ends the worker that needs it, and no worker that has it."""

from __future__ import annotations

import re
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.elastic.checkpoint.conftest import LINE
from tests.elastic.session.handover.test_handover import EXCHANGE, Late, fresh, trained_to
from tidewater.elastic.errors import ConfigError, GroupBroken
from tidewater.elastic.membership.rules import Generation, Member
from tidewater.elastic.observe.log import Log
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer
from tidewater.elastic.session.handover import synchronise


class Together:
    """A group of two ranks that run in threads."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2, self._add)
        self._given: list[list[float]] = []
        self._sums: list[float] = []

    def tally(self, values: list[float], *, timeout_seconds: float = 0.0) -> list[float]:
        self._given.append(values)
        self._wait()
        return self._sums

    def _add(self) -> None:
        self._sums = [sum(each) for each in zip(*self._given, strict=True)]
        self._given = []

    def confirm(self, *, timeout_seconds: float = 0.0) -> None:
        self._wait()

    def leave(self) -> None:
        self._barrier.abort()

    def _wait(self) -> None:
        try:
            self._barrier.wait(60)
        except threading.BrokenBarrierError as error:
            raise GroupBroken("a peer is lost") from error


@pytest.mark.parametrize(
    ("value", "says"),
    [
        pytest.param(
            object(), r"the state has a builtins\.object at stateful\.late\.seen.*make it a number", id="object"
        ),
        pytest.param(KeyError("x"), r"state_dict\(\) of the training's stateful\['late'\] raises KeyError", id="error"),
    ],
)
def test_a_state_that_cannot_be_sent_ends_the_newcomer_and_not_the_worker_that_has_it(value: object, says: str) -> None:
    late, group, events, ends = Late(), Together(), list[str](), dict[str, Exception]()
    states = {"a": trained_to(100, 4, late=late), "b": fresh(late=Late())}
    states["a"].stale, late.seen = False, value
    servers = {name: PeerServer(Identity(b"secret", name)) for name in states}
    servers["a"].start()
    members = tuple(Member(name, name, "127.0.0.1", servers[name].port, "signature", 0) for name in states)
    generation = Generation(6, 9, members, "joined", LINE)

    def meet(name: str, rank: int) -> None:
        worker: Any = SimpleNamespace(group=group, state=states[name], server=servers[name])
        try:
            synchronise(worker, generation, rank, EXCHANGE, Log(name, listener=lambda event, _: events.append(event)))
        except (ConfigError, GroupBroken) as error:
            ends[name] = error
            group.leave()

    threads = [threading.Thread(target=meet, args=(name, rank)) for rank, name in enumerate(states)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert isinstance(ends["a"], GroupBroken), "it goes on in the next generation"
    assert states["a"].present
    assert events == ["state_not_sent"]
    assert isinstance(ends["b"], ConfigError), "a new attempt would end alike"
    assert re.search(f"can't join after step 100.*{says}", str(ends["b"]))
