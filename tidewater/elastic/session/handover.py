"""The beginning of a generation: all ranks get the state of the rank that has applied most steps.

This serves four cases: a newcomer gets the state; a rank with an interrupted last step catches up; a rank that was left
behind drops steps that only it had applied; and if no rank has the state, one reads the last checkpoint and all get it.

The content of the tensors is broadcast over the group, to all ranks that need it at once, and everything else goes
through a socket. A rank that has a state receives into other memory and loads it when it is complete, so it loses
nothing if the broadcast fails. A newcomer receives into its own tensors, and has no second copy.

A state that can't be sent, because a value of the script has appeared in it that can't be stored, ends no rank that
has it: the ranks that need it end with the reason, and the others continue in the next generation.

If a comparison has shown that the states differ (see ``peer.drift``), the ranks that should have the same state
exchange checksums first. Those that differ from the majority lose their state, and get it like newcomers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tidewater.elastic.checkpoint import Found
from tidewater.elastic.checkpoint.lineage import ranked
from tidewater.elastic.errors import ConfigError, Damaged, Drifted, GroupBroken, RecordError, StoreError
from tidewater.elastic.group import broadcast
from tidewater.elastic.group.group import await_all
from tidewater.elastic.machine_errors import device_failure
from tidewater.elastic.membership.rules import Generation, Member
from tidewater.elastic.observe.log import Log
from tidewater.elastic.peer import drift, server
from tidewater.elastic.peer.outline import Outline
from tidewater.elastic.session.state import Position
from tidewater.elastic.session.worker import Worker, save

_HANDOVER_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_NO_CHECKPOINT = (
    "etcd knows of earlier generations of this job, and no checkpoint was written: training begins at step 0"
)
_ASKED = "--begin-again was given, and there is no checkpoint: training begins at step 0"
_SYNC_SECONDS = 600.0


@dataclass(frozen=True)
class Exchange:
    """How the loop takes part."""

    wanted: Callable[[], None]
    """Raises GroupBroken when there is no use in waiting for the state."""
    adopt: Callable[[dict[str, Any], Callable[[dict[str, Any]], Any]], Any]
    """See ``Reports.adopt``."""
    on_drift: str
    """One of ``drift.POLICIES``."""
    compare_every: int
    """Steps between two comparisons of the states."""
    begin_again: bool = False
    """Whether to begin at step 0 if there is no checkpoint, although one was written."""
    agreed: Callable[[], object] = lambda: None
    """Called before this process takes what it has received, and before what all processes of its worker do together.
    Raises GroupBroken if one of them has met a failure."""
    joined: Callable[[list[tuple[int, ...]]], list[tuple[int, ...]]] = lambda rows: rows
    """Returns what all processes of this worker have found out of each rank."""


def synchronise(worker: Worker, generation: Generation, rank: int, exchange: Exchange, log: Log) -> bool:
    """Bring all ranks to the same state, and confirm that all have it. A collective call.

    Return whether a rank had this state before and has reported its last step: then all report it before they go on.

    Raise GroupBroken when a peer fails, when ``wanted`` raises it, or when this rank has the state and can't give it to
    the others. The state is then either the old or the new one, or this rank has none; a call in the next generation
    corrects it. Raise Drifted on all ranks if states differ, and the policy or the lack of a majority forbids to go on.
    Raise ConfigError on ranks that need a state that can't be sent.
    """
    state = worker.state
    own = (state.micro_batch, int(state.pending is None), int(state.suspect))
    rows = _table(worker, generation, rank, (*state.position(generation.lineage), *own))
    *columns, micro_batches, have_reported, suspects = zip(*rows, strict=True)
    positions = [Position(*position) for position in zip(*columns, strict=True)]
    if any(suspects):
        state.suspect = state.present  # if the exchange fails, the next generation compares, whichever rank is lost
        drifted = _compare(worker, generation, rank, positions, exchange, log)
        positions = [Position() if each in drifted else position for each, position in enumerate(positions)]
    else:
        drifted = frozenset()
    source, behind = plan(positions)
    reported = bool(positions[source].trusted) and any(
        mine for mine, position in zip(have_reported, positions, strict=True) if position == positions[source]
    )
    if rank == source and not positions[rank].trusted:
        _restore(worker, generation, exchange, log)
    elif rank not in behind and not positions[rank].current:
        state.begin(generation.lineage, generation.number)
    # A rank that ran out of memory has lowered its own.
    known = [micro_batch for micro_batch in (*micro_batches, state.micro_batch) if micro_batch]
    state.micro_batch = min(known, default=0)
    if not behind:
        return reported
    try:
        _hand_over(worker, generation, rank, (source, behind), exchange, log)
    except RuntimeError as error:
        # Of this worker's memory, for example. It has the state, and others that lack it are no reason to end.
        if rank in behind or device_failure(error):
            raise
        reason = f"the state could not be handed over: {error}"
        worker.group.interrupt(reason)
        raise GroupBroken(reason) from error
    if drifted and rank == 0:  # a checkpoint since the last comparison may have the wrong state
        exchange.agreed()
        save(worker)
    return reported


def _table(worker: Worker, generation: Generation, rank: int, row: Sequence[int]) -> list[list[int]]:
    """Return the rows of all ranks. Collective. The numbers travel in float64, which is exact below 2^53."""
    width = len(row)
    table = [0.0] * width * len(generation.members)
    table[rank * width : (rank + 1) * width] = map(float, row)
    sums = list(map(int, worker.group.tally(table)))
    return [sums[first : first + width] for first in range(0, len(sums), width)]


def _compare(
    worker: Worker, generation: Generation, rank: int, positions: Sequence[Position], exchange: Exchange, log: Log
) -> frozenset[int]:
    """Return the ranks with another state than the majority; they have no state from now on. Collective."""
    state, group = worker.state, worker.group
    mine = state.named_tensors()
    check = drift.halves(drift.checksum(mine.values(), group.device))
    checks = _table(worker, generation, rank, (*check, len(mine), drift.processor(group.device)))
    highest = max(positions)
    # A rank that missed a generation votes, too: `state` is equal only if the others have made no step without it.
    voters = [each for each, position in enumerate(positions) if position.state == highest.state]
    found = drift.judge(exchange.joined([tuple(checks[each][:2]) for each in voters]))
    if found is not None and not found:
        state.suspect, state.repairs = False, 0
        return frozenset()
    drifted = frozenset(voters[index] for index in found or ())
    difference = _difference(worker, generation, rank, checks, voters)
    names = [generation.members[each].worker for each in sorted(drifted)]
    compared = [generation.members[each].worker for each in voters]
    step = highest.steps - 1
    log.event(
        "drifted", workers=",".join(names or compared), step=step, majority=bool(names), difference=str(difference)
    )
    good = worker.checkpoints.before(max(0, step - exchange.compare_every))
    if found is None or exchange.on_drift == "stop":
        await_all(group)
        raise Drifted(drift.verdict(step, names, compared, good, difference))
    state.suspect = False
    state.repairs = state.repairs + 1 if rank in drifted else 0
    if rank in drifted:
        state.present = False
        worker.coordinator.synced(0)
        if state.repairs >= drift.MOST_REPAIRS:
            me = generation.members[rank].worker
            raise Drifted(
                f"the state of {me} has differed from that of the other workers in {state.repairs} comparisons, one "
                f"after the other, and they go on without it; after step {step}: {difference.cause()}"
            )
    return drifted


def _difference(
    worker: Worker, generation: Generation, rank: int, checks: Sequence[Sequence[int]], voters: Sequence[int]
) -> drift.Difference:
    """Return which tensors differ between the voters. Collective."""
    mine, device = worker.state.named_tensors(), worker.group.device
    most = max(count for _, _, count, _ in checks)
    row = [half for tensor in mine.values() for half in drift.halves(drift.checksum([tensor], device))]
    rows = _table(worker, generation, rank, [*row, *[0] * (2 * most - len(row))])
    processors = len({checks[each][-1] for each in voters}) > 1
    if rank not in voters or len({checks[each][-2] for each in voters}) > 1:
        return drift.Difference(processors=processors)
    names = tuple(
        name for index, name in enumerate(mine) if len({tuple(rows[each][2 * index :][:2]) for each in voters}) > 1
    )
    buffers = bool(names) and worker.state.buffer_names.issuperset(names)
    return drift.Difference(names, len(mine), buffers, processors)


def plan(positions: list[Position]) -> tuple[int, frozenset[int]]:
    """Return the rank that has the state that counts, and the ranks that must get this state.

    Possibly no rank has the latest state: the ranks that had it may have continued alone, and are lost now. Then the
    source reads the last checkpoint first, and all others get the result.
    """
    highest = max(positions)
    source, trusted = positions.index(highest), bool(highest.trusted)
    return source, frozenset(
        rank for rank, position in enumerate(positions) if rank != source and (position != highest or not trusted)
    )


def _hand_over(
    worker: Worker,
    generation: Generation,
    rank: int,
    planned: tuple[int, frozenset[int]],
    exchange: Exchange,
    log: Log,
) -> None:
    """Give the source's state to the ranks that are behind. Return when all have it. Collective."""
    source, behind = planned
    group, state, started = worker.group, worker.state, time.monotonic()
    outline, tensors = Outline.of({})
    try:
        if rank == source:
            outline, tensors = _offer(worker, generation, log)
        elif rank in behind:
            peer, deadline = generation.members[source], started + _SYNC_SECONDS
            outline = server.fetch(worker.server.identity, peer.address, generation.uuid, exchange.wanted, deadline)
        mine = (broadcast.size_of(tensors), state.step) if rank == source else (0, 0)
        size, step = map(int, group.tally(mine, timeout_seconds=_SYNC_SECONDS))
    finally:
        worker.server.withdraw()
    if rank in behind:
        tensors = _received(worker, outline, step)
        broadcast.run(group, source, size, tensors, exchange.wanted)
        exchange.agreed()
        exchange.adopt(outline.join(tensors), state.load)
        log.event("state_synced", from_rank=source, step=state.step, seconds=time.monotonic() - started)
    else:
        broadcast.run(group, source, size, tensors if rank == source else None)
    group.confirm(timeout_seconds=_SYNC_SECONDS)


def _offer(worker: Worker, generation: Generation, log: Log) -> tuple[Outline, list[torch.Tensor]]:
    """Offer the outline of the state, and return it with the tensors. Without them, offer the reason."""
    try:
        outline, tensors = Outline.of(worker.state.whole())
    except ConfigError as error:
        log.event("state_not_sent", step=worker.state.step, reason=str(error))
        reason = f"this worker can't join after step {worker.state.step}, and the others continue without it: {error}"
        worker.server.refuse(generation.uuid, reason)
        return Outline.of({})
    worker.server.offer(generation.uuid, outline)
    return outline, tensors


def _received(worker: Worker, outline: Outline, step: int) -> list[torch.Tensor]:
    """Return the tensors into which the state after ``step`` is received.

    A newcomer's are its own, and new ones for the moments of the optimizers. But a job that has made no step begins
    with the initial values of any worker, so these are kept until another one's are complete: there are no moments yet.
    """
    state, cpu, device = worker.state, torch.device("cpu"), worker.group.device
    if state.present or state.step or not step:
        return [layout.empty(cpu) for layout in outline.layouts.values()]
    mine, state.damaged = state.receivers(), True
    tensors, used = [], set[int]()
    for name, layout in outline.layouts.items():
        # What has two names is received once in place: until a chunk has arrived, its memory may contain anything.
        if name in mine and layout.fits(mine[name]) and mine[name].data_ptr() not in used:
            used.add(mine[name].data_ptr())
            tensors.append(mine[name])
        else:
            moves = name.startswith(("optimizers.", "outer.")) and layout.device == device.type
            tensors.append(layout.empty(device if moves else cpu))
    return tensors


def _restore(worker: Worker, generation: Generation, exchange: Exchange, log: Log) -> None:
    """Load the checkpoint that counts, or begin a new training. No rank has the job's latest state.

    A state that was left behind stays if no checkpoint counts more. Raise Drifted if there is no checkpoint, and only a
    state that differed from that of the majority; ConfigError if a checkpoint was written, and there is none now.
    """
    _await_leavers(worker, generation, exchange.wanted)
    state = worker.state
    found = worker.checkpoints.load(generation.lineage)
    if not found and not state.step:
        _begin_again(worker, generation, exchange, log)
    if found:
        _refuse_older_etcd(found, generation)
    elif state.step and not state.present:
        raise Drifted(
            f"the state of this worker after step {state.step} differed from that of the others, which are gone now, "
            "and there is no checkpoint: give the job a new name"
        )
    if found and not (state.present and next(ranked([state.history, found.history], generation.lineage)) == 0):
        asked_for = 0 if state.present else state.micro_batch
        moments = exchange.adopt(found.tree, state.resume)
        state.micro_batch = asked_for or state.micro_batch
        log.event(
            "checkpoint_loaded",
            step=found.step,
            path=str(found.path),
            optimizer="starts with fresh moments" if moments is False else "continues",
        )
    if state.step:
        _say_missing(worker, log)
    state.begin(generation.lineage, generation.number)
    state.present, state.stale, state.applied_in = True, False, generation.number


def _begin_again(worker: Worker, generation: Generation, exchange: Exchange, log: Log) -> None:
    """Let training begin at step 0. Raise ConfigError if a checkpoint was written, unless ``begin_again`` is given.

    Raise Damaged if this worker does not have the initial values any more.
    """
    if worker.state.damaged:
        raise Damaged(
            "this worker has received the state of another one only in part, no worker has the state now, and there is "
            "no checkpoint: start this worker again, and the job begins at step 0"
        )
    saved = worker.coordinator.view.saved
    if saved and saved.step:
        if not exchange.begin_again:
            raise ConfigError(
                f"etcd knows of this job's checkpoint of step {saved.step} in {saved.where}, and --checkpoints is "
                f"{worker.checkpoints.text}, which has none, so training would begin at step 0: name the place of the "
                "last run, or restore its checkpoints; to begin at step 0 nevertheless, give --begin-again"
            )
        worker.coordinator.saved(0, "")
        log.event("begins_again", generation=generation.number, reason=_ASKED)
    elif generation.number > 1:
        log.event("begins_again", generation=generation.number, reason=_NO_CHECKPOINT)


def _say_missing(worker: Worker, log: Log) -> None:
    """Log it if no place has the checkpoint that etcd knows of, and training continues from an older state."""
    saved, checkpoints, step = worker.coordinator.view.saved, worker.checkpoints, worker.state.step
    # One that is there and not used counts less, because others have continued without it, or is damaged.
    if saved and step < saved.step and checkpoints.before(saved.step) < saved.step:
        reason = (
            f"--checkpoints is {checkpoints.text}, which does not have it, so the steps after step {step} are made "
            "again. To continue from it instead, stop the workers before the next checkpoint is written, and name its "
            "place or restore it"
        )
        log.event("checkpoint_missing", step=saved.step, place=saved.where, continues_after=step, reason=reason)


def _refuse_older_etcd(found: Found, generation: Generation) -> None:
    """Raise RecordError if etcd's numbers would repeat: new checkpoints would then count less than this one."""
    now = found.history.now
    if now.lineage == generation.lineage and now.generation >= generation.number:
        raise RecordError(
            f"{found.path} was written in generation {now.generation}, but etcd is only at generation "
            f"{generation.number}: etcd's data are older than the checkpoint (a restored backup?). Delete the keys of "
            "this job in etcd, and start its workers again: they continue from the checkpoint"
        )


def _await_leavers(worker: Worker, generation: Generation, wanted: Callable[[], None]) -> None:
    """Wait until members that leave without handing over their state have saved it and withdrawn their records.

    A leaving member that is still in this generation waits here too, or for this worker.
    """

    def are_gone(members: Sequence[Member]) -> bool:
        return not any(member.leaving and generation.rank(member.id) is None for member in members)

    coordinator, deadline = worker.coordinator, time.monotonic() + _HANDOVER_SECONDS
    while time.monotonic() < deadline:
        looks_at = time.monotonic() + _LOOK_SECONDS
        if coordinator.view.whole:
            if coordinator.wait(lambda view: are_gone(view.members), looks_at):
                return
        else:  # of a large job, in which this worker doesn't decide: it follows no other's record
            with contextlib.suppress(StoreError):
                if are_gone(coordinator.follower.everyone()):
                    return
            coordinator.wait(lambda view: view.whole, looks_at)
        wanted()
