"""Which members each pings while none of them is silent: in a large job some, that are spread over all ranks.

    neighbours.of(rank=7, number=1000)      # 32 ranks and some of the first

A member that finds a neighbour silent pings all others. If a network failure divides the members in two, nearly each of
them must have a neighbour on the other side: members are put into one generation again unless one of them has recorded
that it can't reach the other. So neighbours are drawn. Consecutive ranks would all be on one side if each side has half
of the ranks, and every second rank would be if the sides alternate.

A frozen process accepts connections. So a member also pings those to which it sends its vote first (see
``membership.votes``): for the answer of one that is not known to be silent it would wait longer than those that decide
wait for its vote.
"""

from __future__ import annotations

import random

from tidewater.elastic.membership.deciders import DECIDERS
from tidewater.elastic.membership.votes import relay_of

_FEW = 32
"""Neighbours of a member. In a job with no more members each pings all."""


def of(rank: int, number: int) -> set[int]:
    """Return the ranks that a member pings, of this number of members. Each is pinged by 32 or more.

    Those that decide (see ``membership.deciders``) ping all. The first 32 ping each other, too: if the machine is gone
    that had those that decide, the next ones know it and step in at once. A relay and members of the group of rank 0,
    which needs none, ping those that decide, and all others their relay.

    Args:
        rank: Of the member; -1 of a process that is none of them, which pings all.
    """
    others = {*range(number)} - {rank}
    if rank < DECIDERS or number <= _FEW:
        return others
    steps = random.Random(number).sample(range(1, number), _FEW)  # the same for all members
    first, relay = range(_FEW) if rank < _FEW else (), relay_of(rank, number)
    heard_by = range(DECIDERS) if relay in (0, rank) else (relay,)
    return others & {*((rank + each) % number for each in steps), *first, *heard_by}
