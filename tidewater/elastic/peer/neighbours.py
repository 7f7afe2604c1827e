"""Which members each pings while none of them is silent: in a large job some, that are spread over all ranks.

    neighbours.of(rank=7, number=1000)      # 32 ranks and some of the first

One that finds a silent one pings all. So where a network failure divides the members, nearly all of them must have
neighbours on the other side: a pair that can't reach each other, and that no member has recorded, would be put into one
generation again. A row of ranks as neighbours would have its own side only, if the sides are halves, and each second
rank if they alternate.
"""

from __future__ import annotations

import random

from tidewater.elastic.membership.deciders import DECIDERS

_FEW = 32


def of(rank: int, number: int) -> set[int]:
    """Return the ranks that a member pings, of this number of members. Each is pinged by 32 or more.

    Those that decide (see ``membership.deciders``) ping all. The first 32 ping each other, too: if the machine is gone
    that had those that decide, the next ones know it and step in at once.

    Args:
        rank: Of the member; -1 of a process that is none of them, which pings all.
    """
    others = {*range(number)} - {rank}
    if rank < DECIDERS or number <= _FEW:
        return others
    steps = random.Random(number).sample(range(1, number), _FEW)  # the same for all members
    first = range(_FEW) if rank < _FEW else ()
    return others & {*((rank + each) % number for each in steps), *first}
