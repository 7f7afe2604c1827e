"""The beginning of a generation: all ranks get the state of the rank that has applied most steps.

This serves four cases: a newcomer gets the state; a rank whose last step was interrupted catches up; a rank that was
left behind drops steps that only it had applied; and if no rank has the state, one reads the last checkpoint and all
get it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.checkpoint import Found
from trainer.checkpoint.lineage import ranked
from trainer.errors import RecordError
from trainer.membership.rules import Generation, View
from trainer.observe.log import Log
from trainer.parts import Parts
from trainer.peer import server
from trainer.state import Position

_HANDOVER_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_SYNC_SECONDS = 600.0


def synchronise(parts: Parts, generation: Generation, rank: int, wanted: Callable[[], None], log: Log) -> bool:
    """Bring all ranks to the same state, and confirm that all have it. A collective call.

    Return whether this rank's state was replaced. Raise GroupBroken when a peer fails, or when ``wanted`` raises it.
    The state is then either the old or the new one, never a mixture, and a call in the next generation corrects it.
    """
    group, state = parts.group, parts.state
    mine = state.position(generation.lineage)
    row = [*mine, state.micro_batch]
    width = len(row)
    table = [0.0] * width * len(generation.members)
    table[rank * width : (rank + 1) * width] = map(float, row)
    sums = list(map(int, group.tally(table)))
    rows = [sums[first : first + width] for first in range(0, len(sums), width)]
    source, behind = plan([Position(*position) for *position, _ in rows])
    replaced = rank in behind
    if rank == source and not mine.trusted:
        replaced = _restore(parts, generation, wanted, log)
    elif rank not in behind and not mine.current:
        state.begin(generation.lineage, generation.number)
    # A rank whose memory did not suffice has lowered its own.
    known = [micro_batch for micro_batch in (*(row[-1] for row in rows), state.micro_batch) if micro_batch]
    state.micro_batch = min(known, default=0)
    if not behind:
        return replaced
    if rank == source:
        parts.server.offer(generation.uuid, state.tree())
    try:
        if rank in behind:
            _fetch(parts, generation, source, wanted, log)
        group.confirm(timeout_seconds=_SYNC_SECONDS)
    finally:
        parts.server.withdraw()
    return replaced


def plan(positions: list[Position]) -> tuple[int, frozenset[int]]:
    """Return the rank whose state counts, and the ranks that have another state and must get it.

    Possibly no rank has the latest state: the ranks that had it may have continued alone, and are lost now. Then the
    source reads the last checkpoint first, and all others get the result.
    """
    highest = max(positions)
    source, trusted = positions.index(highest), bool(highest.trusted)
    return source, frozenset(
        rank for rank, position in enumerate(positions) if rank != source and (position != highest or not trusted)
    )


def _fetch(parts: Parts, generation: Generation, source: int, wanted: Callable[[], None], log: Log) -> None:
    started, peer = time.monotonic(), generation.members[source]
    tree = server.fetch(parts.server.identity, peer.address, generation.uuid, wanted, started + _SYNC_SECONDS)
    parts.state.load(tree)
    log.event("state_synced", from_rank=source, step=parts.state.step, seconds=time.monotonic() - started)


def _restore(parts: Parts, generation: Generation, wanted: Callable[[], None], log: Log) -> bool:
    """Load the checkpoint that counts, or begin a new training. No rank has the job's latest state.

    Return whether this rank's state was replaced: a state that was left behind stays if no checkpoint counts more.
    """
    _await_leavers(parts, generation, wanted)
    state = parts.state
    found = parts.checkpoints.load(generation.lineage)
    if found:
        _refuse_older_etcd(found, generation)
    replaced = found is not None and not (
        state.present and next(ranked([state.history, found.history], generation.lineage)) == 0
    )
    if found and replaced:
        asked_for = 0 if state.present else state.micro_batch
        moments = state.resume(found.tree)
        state.micro_batch = asked_for or state.micro_batch
        log.event(
            "checkpoint_loaded",
            step=found.step,
            path=str(found.path),
            optimizer="starts with fresh moments" if moments is False else "continues",
        )
    state.begin(generation.lineage, generation.number)
    state.present, state.stale, state.applied_in = True, False, generation.number
    return replaced


def _refuse_older_etcd(found: Found, generation: Generation) -> None:
    """Raise RecordError if etcd's numbers would repeat: new checkpoints would then count less than this one."""
    now = found.history.now
    if now.lineage == generation.lineage and now.generation >= generation.number:
        raise RecordError(
            f"{found.path} was written in generation {now.generation}, but etcd is only at generation "
            f"{generation.number}: etcd's data are older than the checkpoint (a restored backup?). Delete the keys of "
            "this job in etcd, and start its workers again: they continue from the checkpoint"
        )


def _await_leavers(parts: Parts, generation: Generation, wanted: Callable[[], None]) -> None:
    """Wait until members that leave without handing over their state have saved it and withdrawn their records.

    A leaving member that is still in this generation waits here too, or for this worker.
    """

    def are_gone(view: View) -> bool:
        return not any(member.leaving and generation.rank(member.id) is None for member in view.members)

    deadline = time.monotonic() + _HANDOVER_SECONDS
    while not parts.coordinator.wait(are_gone, time.monotonic() + _LOOK_SECONDS) and time.monotonic() < deadline:
        wanted()
