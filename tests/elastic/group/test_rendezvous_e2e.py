"""A machine vanishes while a group is formed: its peers notice without waiting for TCP timeouts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.elastic.schedules.network import Network
from tests.elastic.workers import CHECKOUT
from tidewater.elastic.launch.lifeline import bound_to

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

UUID = 7
FORM_SECONDS = 50.0
"""For a group with all members present; a slow machine needs some of it."""
VANISHED_SECONDS = 10.0
"""The same where one member vanishes: the other waits that long."""
PATIENCE_SECONDS = 60
"""Far more than the bound, 3 s for gloo and 10 s for the rest, and far less than TCP's quarter of an hour."""

SCRIPT = f"""
import secrets, sys, time
import torch
from tidewater.elastic.group import rendezvous as meeting
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.addresses import Address
from tests.elastic.group.kinds import KINDS, patient
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer

rank, form_seconds, host, first, kind = int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]
peers = PeerServer(Identity(b"secret"))
peers.start()
group = KINDS[kind](host, torch.device("cpu"), timeout_seconds=30, peers=peers)
if form_seconds == {FORM_SECONDS}:
    patient(group)
group.form(secrets.randbits(48), 0, (Address("127.0.0.1", peers.port),), time.monotonic() + 20)
get = meeting.MeetingStore.get

def get_and_wait(store, key):
    value = get(store, key)
    if rank == 1 and (key == "0/0" or key.endswith("/{UUID}/0/0")):  # gloo's address of rank 0; rank 1 connects now
        print("there", flush=True)
        sys.stdin.readline()
    return value

meeting.MeetingStore.get = get_and_wait
print(peers.port, flush=True)
port = int(sys.stdin.readline())
try:
    group.form({UUID}, rank, (Address(first, port), Address(host, 1)), time.monotonic() + form_seconds)
    print("formed", flush=True)
except GroupBroken as error:
    print("broken:", error, flush=True)
"""


class Rank:
    """A process on a simulated host that forms a group of two."""

    def __init__(self, network: Network, rank: int, kind: str, form_seconds: float) -> None:
        host = network.hosts[rank]
        self._process = subprocess.Popen(
            [
                *("nsenter", f"--net=/run/netns/{host.netns}", sys.executable, "-c", SCRIPT),
                *(str(rank), str(form_seconds), host.address, network.hosts[0].address, kind),
            ],
            cwd=CHECKOUT,
            env={name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=bound_to(os.getpid()),
        )

    def says(self) -> str:
        """Return the next line of its output."""
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> str:
        """Return its remaining output; it must end soon."""
        return self._process.communicate(timeout=PATIENCE_SECONDS)[0].strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=[("reconfigured", FORM_SECONDS)], ids=["reconfigured"])
def ranks(request: pytest.FixtureRequest) -> Iterator[tuple[Network, list[Rank]]]:
    """Yield two ranks that are ready to meet at the first one; the parameter is the kind of group and its seconds."""
    kind, form_seconds = request.param
    with Network(workers=2) as network:
        ranks = [Rank(network, rank, kind, form_seconds) for rank in range(2)]
        try:
            port, _ = [rank.says() for rank in ranks]
            for rank in ranks:
                rank.tell(port)
            yield network, ranks
        finally:
            for rank in ranks:
                rank.kill()


def test_two_members_that_reach_each_other_form_a_group(ranks: tuple[Network, list[Rank]]) -> None:
    _, (first, second) = ranks
    assert second.says() == "there"
    second.tell("go on")
    assert first.end() == second.end() == "formed"


@pytest.mark.parametrize(
    "ranks",
    [("reconfigured", VANISHED_SECONDS), ("restarted", VANISHED_SECONDS)],
    ids=["reconfigured", "restarted"],
    indirect=True,
)
def test_a_member_does_not_wait_for_tcp_timeouts_if_its_peer_vanishes_while_connecting(
    ranks: tuple[Network, list[Rank]],
) -> None:
    network, (first, second) = ranks
    assert second.says() == "there"
    network.cut({(0, 1)})
    second.tell("go on")
    assert "a peer did not arrive at the rendezvous in time" in second.end()
    assert "could not connect to the other workers" in first.end()
