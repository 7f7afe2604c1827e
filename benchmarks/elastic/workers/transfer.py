"""Transfers a large state from one process to another, with the trainer's code and with a plain socket, in turns.

python transfer.py MEGABYTES RUNS        # prints {"peer": [seconds, …], "plain": [seconds, …]}
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection

import torch

from benchmarks.elastic.workers import names
from tidewater.elastic.addresses import Address
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer, fetch

UUID = 1
IDENTITY = Identity(b"of this benchmark")
TENSORS = 64
MEGABYTE = 1 << 20
_DEADLINE_SECONDS = 120.0


def main(megabytes: int, runs: int) -> None:
    """Measure and print."""
    mine, theirs = multiprocessing.Pipe()
    sender = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, megabytes), daemon=True)
    sender.start()
    peer, plain = mine.recv()
    spent: dict[str, list[float]] = {"peer": [], "plain": []}
    for run in range(2 * runs):
        begin = time.monotonic()
        if run % 2:
            copy((names.HOST, plain), megabytes * MEGABYTE)
        else:
            fetch(IDENTITY, Address(names.HOST, peer), UUID, lambda: None, begin + _DEADLINE_SECONDS)
        spent["plain" if run % 2 else "peer"].append(time.monotonic() - begin)
    print(json.dumps(spent))


def serve(parent: Connection, megabytes: int) -> None:
    """Offer a state, and the same bytes on another port, until the parent ends."""
    torch.set_num_threads(1)
    state = torch.rand(TENSORS, megabytes * MEGABYTE // TENSORS // 4)
    server = PeerServer(IDENTITY)
    server.start()
    server.offer(UUID, {str(index): part for index, part in enumerate(state)})
    listener = socket.create_server((names.HOST, 0))

    def answer() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(state.flatten().numpy().data.cast("B"))

    threading.Thread(target=answer, daemon=True).start()
    parent.send((server.port, listener.getsockname()[1]))
    parent.poll(None)


def copy(address: tuple[str, int], size: int) -> None:
    """Receive this number of bytes into fresh memory, as for a state."""
    view = memoryview(torch.empty(size, dtype=torch.uint8).numpy().data)
    with socket.create_connection(address) as connection:
        while view:
            view = view[connection.recv_into(view) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
