"""Connections that notice a dead peer, and calls that wait for one that is restarted.

channel = connect("elasticdl-mnist-ps-0:2222")
reply = patiently(lambda: stub.Pull(request, timeout=CALL_SECONDS), "parameter server 0", seconds=300, say=log)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import grpc

from elasticdl.errors import ElasticDLError

T = TypeVar("T")

CALL_SECONDS = 60.0
"""Longest wait for one answer."""

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # all peers are pods, some by names that no list of names without a proxy has
    # A peer on a node without power sends no reset: a ping every 3 s that isn't answered within 3 s ends it.
    ("grpc.keepalive_time_ms", 3000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 2000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    # A pod that comes back under its name has another address: look it up again soon.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.dns_min_time_between_resolutions_ms", 500),
    # Two clients of one process must not share a connection that one of them has given up.
    ("grpc.use_local_subchannel_pool", 1),
)
"""Of channels and servers. https://github.com/grpc/grpc/blob/master/include/grpc/impl/channel_arg_names.h"""

_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def connect(address: str) -> grpc.Channel:
    """Return a channel to `host:port`; it connects with the first call."""
    return grpc.insecure_channel(address, options=OPTIONS)


def patiently(call: Callable[[], T], peer: str, *, seconds: float, say: Callable[[str], None]) -> T:
    """Return what a call returns; call again while the peer can't be reached, as it may be restarted.

    Args:
        call: What to do. It may be done more than once, so the peer must be able to tell that it has done it before.
        peer: Who is called, for messages.
        seconds: For how long the peer may be away.
        say: Receives one message when the wait for the peer begins, and one when the peer is back.

    Raises:
        ElasticDLError: the peer was away for longer.
        grpc.RpcError: the peer refuses the call.
    """
    deadline, told, pause = time.monotonic() + seconds, False, 0.05
    while True:
        try:
            result = call()
        except grpc.RpcError as error:
            status: grpc.StatusCode = error.code()
            if status not in _PASSING:
                raise
            if time.monotonic() >= deadline:
                raise ElasticDLError(
                    f"{peer} has not answered for {seconds:.0f} s ({status.name})",
                    "See its pod: `kubectl describe` says why it doesn't run, `kubectl logs` why it ended.",
                ) from error
            if not told:
                say(f"{peer} can't be reached; waiting for it")
                told = True
            time.sleep(pause)
            pause = min(1.0, 2 * pause)
        else:
            if told:
                say(f"{peer} is back")
            return result
