"""The beginning of a generation: everyone gets the state of the rank that has applied most.

That is how a newcomer gets its state, how a rank catches up whose last step was cut short when others' was not, how one
that was left behind drops what only it had applied, and, when nobody has the state, how all get what one has read from
the last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from trainer.membership.rules import Generation, View
from trainer.observe.log import Log
from trainer.parts import Parts
from trainer.peer import server
from trainer.state import Position

_HANDOVER_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_SYNC_SECONDS = 600.0


def synchronise(parts: Parts, generation: Generation, rank: int, wanted: Callable[[], None], log: Log) -> bool:
    """Bring all ranks to the same state, and let each know that all have it; a collective call.

    Returns whether this rank's state was replaced. Raises GroupBroken when a peer fails on the way, or as soon as
    ``wanted`` does. The state is then either the one from before or the new one, never a mixture; calling again in the
    next generation sets it right.
    """
    group, state = parts.group, parts.state
    mine = state.position()
    table = torch.zeros((len(generation.members), len(mine)), dtype=torch.float64, device=group.device)
    table[rank] = torch.tensor(mine, dtype=torch.float64)
    group.all_reduce(table)
    source, behind = plan([Position(*map(int, row)) for row in table.tolist()])
    if rank == source and not mine.trusted:
        _restore(parts, generation, wanted, log)
    if not behind:
        return False
    if rank == source:
        parts.server.offer(generation.uuid, state.tree())
    try:
        if rank in behind:
            _fetch(parts, generation, source, wanted, log)
        group.confirm(timeout_seconds=_SYNC_SECONDS)
    finally:
        parts.server.withdraw()
    return rank in behind


def plan(positions: list[Position]) -> tuple[int, frozenset[int]]:
    """Whose state counts, and which ranks must get it: all that have another one.

    Nobody's state may be the latest: those who had it may have gone on alone and be lost by now. The source then
    looks at the last checkpoint first, and all others get what it finds.
    """
    highest = max(positions)
    source, trusted = positions.index(highest), bool(highest.trusted)
    return source, frozenset(
        rank for rank, position in enumerate(positions) if rank != source and (position != highest or not trusted)
    )


def _fetch(parts: Parts, generation: Generation, source: int, wanted: Callable[[], None], log: Log) -> None:
    started, peer = time.monotonic(), generation.members[source]
    tree = server.fetch((peer.host, peer.peer_port), generation.uuid, wanted, started + _SYNC_SECONDS)
    parts.state.load(tree)
    log.event("state_synced", from_rank=source, step=parts.state.step, seconds=time.monotonic() - started)


def _restore(parts: Parts, generation: Generation, wanted: Callable[[], None], log: Log) -> None:
    """Nobody has the job's latest state: take it from the last checkpoint, or begin."""
    _await_leavers(parts, generation, wanted)
    state = parts.state
    found = parts.checkpoints.load()
    if found and not (state.present and state.step >= found.step):
        state.load(found.tree)
        log.event("checkpoint_loaded", step=found.step, path=str(found.path))
    state.present, state.stale, state.applied_in = True, False, generation.number


def _await_leavers(parts: Parts, generation: Generation, wanted: Callable[[], None]) -> None:
    """Those who leave without passing the state on save it first, and withdraw their record after that.

    Who is in this generation still, and is to leave, waits here itself, or for this worker.
    """

    def are_gone(view: View) -> bool:
        return not any(member.leaving and generation.rank(member.id) is None for member in view.members)

    deadline = time.monotonic() + _HANDOVER_SECONDS
    while not parts.coordinator.wait(are_gone, time.monotonic() + _LOOK_SECONDS) and time.monotonic() < deadline:
        wanted()
