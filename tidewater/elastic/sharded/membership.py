"""A worker's part in the membership, in those of its processes that leave the decisions to the first one."""

from __future__ import annotations

from dataclasses import replace

from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.rules import Generation


class Secondary(Coordinator):
    """Follows the records in etcd, and writes none of this worker's. It is never announced."""

    def in_touch(self) -> bool:
        """Return True: the first process knows whether the worker may take part in a step."""
        return True

    def announce(self) -> None:
        """Leave this to the first process."""

    def finish(self, record: bytes) -> None:
        """Leave this to the first process."""

    def saved(self, step: int, where: str) -> None:
        """Leave this to the first process."""


def of_process(generation: Generation, index: int) -> Generation:
    """Return a generation in which the addresses of the members are those of their processes with that index."""
    if not index:
        return generation
    members = (
        replace(
            member,
            host=member.shard_hosts[index - 1] if member.shard_hosts else member.host,
            peer_port=member.shard_ports[index - 1],
        )
        for member in generation.members
    )
    return replace(generation, members=tuple(members))
