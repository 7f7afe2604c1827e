"""Launchers understand each other's messages, and nothing else."""

from __future__ import annotations

import pytest

from tidewater.elastic.launch.nodes import messages
from tidewater.elastic.launch.nodes.messages import End, Ended, Hello, Idle, Leave, Ping, Start, Stop, decode, encode

ALL = [
    *(Hello(1, 2, 4, "a-1", 0), Ended(137, 2), Idle(8), Start(2**60, 0), Stop(0.5), Stop(None), Leave()),
    *(End(2, "--shard is 4"), Ping()),
]


@pytest.mark.parametrize("message", ALL, ids=lambda each: type(each).__name__)
def test_a_message_arrives_as_it_was_sent(message: messages.Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize("line", [b"", b"{}", b"[1]", b"null", b'{"Stop": {}}', b'{"Exec": {"c": 1}}', b'{"End": 3}'])
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)
