"""The beginning of a generation: everyone gets the state of the rank that has committed most.

That is how a newcomer gets its state, how a rank catches up whose vote was cut short when others' was not, and, when
nobody has the state, how all get what rank 0 has read from the last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from trainer import sync
from trainer.log import Log
from trainer.membership import Generation
from trainer.parts import Parts

_HANDOVER_SECONDS = 30.0
_SYNC_SECONDS = 600.0


def synchronise(parts: Parts, generation: Generation, rank: int, wanted: Callable[[], None], log: Log) -> None:
    """Bring all ranks to the same state; a collective call.

    Raises GroupBroken when a peer fails on the way, or as soon as ``wanted`` does. The state is then either the one
    from before or the new one, never a mixture; calling again in the next generation sets it right.
    """
    group, state = parts.group, parts.state
    positions = torch.zeros(len(generation.members), dtype=torch.float64, device=group.device)
    positions[rank] = state.step + 1 if state.present else 0
    group.all_reduce(positions)
    most = positions.max().item()
    source = int(positions.argmax().item())
    behind = [peer for peer, position in enumerate(positions.tolist()) if position < most or (not most and peer)]
    if rank == source and not most:
        _restore(parts, log)
    if not behind:
        return
    if rank == source:
        parts.server.offer(generation.uuid, state.pack())
    try:
        if rank in behind:
            _fetch(parts, generation, source, wanted, log)
        group.all_reduce(torch.zeros(1, device=group.device), timeout_seconds=_SYNC_SECONDS)
    finally:
        parts.server.withdraw()


def _fetch(parts: Parts, generation: Generation, source: int, wanted: Callable[[], None], log: Log) -> None:
    started, peer = time.monotonic(), generation.members[source]
    payload = sync.fetch((peer.host, peer.peer_port), generation.uuid, wanted, started + _SYNC_SECONDS)
    parts.state.unpack(payload)
    seconds = time.monotonic() - started
    log.event("state_synced", from_rank=source, step=parts.state.step, bytes=len(payload), seconds=seconds)


def _restore(parts: Parts, log: Log) -> None:
    """Nobody has the job's state: take it from the volume, or begin."""
    # Those who leave without passing the state on save it first, and withdraw their record after that.
    parts.coordinator.wait(
        lambda view: not any(member.leaving for member in view.members), time.monotonic() + _HANDOVER_SECONDS
    )
    found = parts.checkpoints.load()
    if found:
        parts.state.unpack(found.payload)
        log.event("checkpoint_loaded", step=found.step, path=str(found.path))
    parts.state.present = True
