"""The elastic loop: generation after generation, step after step, until the job is done.

    Loop(config, parts, log).run()      # -> exit code

A rank *applies* a step when all its gradients have been summed. If anything fails, nothing is applied: the survivors
give the generation up, form the group of the next one in the same process and repeat the step. A failure can happen
when only some ranks have received their sums, so that only they have applied the step. Each generation therefore begins
with a comparison, and ranks that are behind, newcomers included, get the state of the rank ahead (see ``handover``).

A step is *final* when the gradients of the next one are summed. Only final steps are reported, counted and saved. No
rank contributes to the next step before it has applied this one, so every member of the generation has a final step. A
step that a rank applied while it was being cut off never becomes final; the rank drops it when it returns. So two
groups never both make a step final, whatever the network does, and no extra round trip is needed for a vote.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidewater.contract import leaving
from tidewater.elastic.config import Config
from tidewater.elastic.data.loader import Place, Prepared
from tidewater.elastic.errors import ConfigError, GroupBroken, OutOfMemory
from tidewater.elastic.evaluation import Evaluation, Seat
from tidewater.elastic.membership.ending import Ending
from tidewater.elastic.membership.rules import Generation, Member, View, lost_members
from tidewater.elastic.membership.touch import Touch
from tidewater.elastic.method.progress import is_over, progress
from tidewater.elastic.observe.final import Part, Reports
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.meter import Change
from tidewater.elastic.parts import Parts
from tidewater.elastic.peer import handover, server
from tidewater.elastic.step import Outcome
from tidewater.elastic.training import Report

_PROBE_SECONDS = 0.5
_FORM_SECONDS = 20.0


class Loop:
    """Trains as one worker until the job is finished or this worker is asked to leave."""

    def __init__(self, config: Config, parts: Parts, log: Log) -> None:
        self._config, self._parts, self._log = config, parts, log
        self._generation: Generation | None = None
        self._leaving_since: float | None = None
        self._change = Change()
        self._reports = Reports(config, parts, log)
        self._meter = self._reports.meter
        self._evaluation = Evaluation(parts, log)
        self._touch = Touch(parts, overdue=self._overdue, waits=self._waits_for_etcd)
        self._ending = Ending(parts, log, self._touch, overdue=self._overdue)
        self._waiting_for = ""
        self.waiting_since: float | None = None
        """Monotonic time since which this worker waits for its peers, or None. If it waits long, the heartbeat pings
        them."""

    def leave(self) -> None:
        """Leave at the next step boundary (SIGTERM). May be called from any thread, more than once."""
        if self._leaving_since is None:
            self._leaving_since = time.monotonic()
            self._parts.coordinator.leave()

    def membership_changed(self, view: View) -> None:
        """Interrupt a wait for a peer that will not answer. Called by the coordinator's threads."""
        generation = self._generation
        if generation is None:
            return
        if view.number < generation.number:
            self._parts.group.interrupt("etcd has lost the membership")
        else:
            lost = lost_members(view, generation, self._parts.member_id)
            if lost:
                self._parts.group.interrupt(f"no further step is possible with {', '.join(lost)}")

    def peer_silent(self, member: Member) -> None:
        """Give up a peer that is frozen or cut off. Called by the heartbeat's thread."""
        self._log.event("peer_silent", peer=member.worker)
        self._parts.group.interrupt(f"no answer from {member.worker}")

    def run(self) -> int:
        """Train. Return an exit code of ``contract.exit_codes``. Raise ConfigError, RecordError or Diverged."""
        while True:
            generation = self._next_generation()
            if generation is None:
                return self._ending.finished() if self._parts.coordinator.view.finished else self._left()
            self._enter(generation)
            try:
                if len(generation.members) < self._config.least_members:
                    self._hold(generation)
                else:
                    self._train_in(generation)
            except GroupBroken as error:
                if isinstance(error, OutOfMemory):
                    self._log.event("out_of_memory", micro_batch=self._parts.state.micro_batch, reason=str(error))
                self._change.broken()
                self._log.event("step_discarded", generation=generation.number, reason=str(error))
                self._parts.heartbeat.tense(True)
                self._parts.coordinator.ready_after(generation.number)

    def _next_generation(self) -> Generation | None:
        """Wait for the next generation that this worker is in. Return None if the job is finished or this worker
        leaves."""
        coordinator, last = self._parts.coordinator, self._generation.number if self._generation else 0
        while True:
            view = coordinator.view
            inside = view.generation is not None and view.generation.rank(self._parts.member_id) is not None
            if view.finished or self._overdue() or (self._leaving_since is not None and not inside):
                return None
            if inside and view.number > last:
                return view.generation
            if view.generation is not None and not inside:
                self._refuse_mismatch(view)
                self._say_waiting("in_line", len(view.generation.members))
                coordinator.ready_after(view.number)
            coordinator.wait_for_news(view, time.monotonic() + 0.5)

    def _refuse_mismatch(self, view: View) -> None:
        reason = self._parts.refusal(view)
        if reason:
            raise ConfigError(reason)

    def _enter(self, generation: Generation) -> None:
        """Enter a generation, and log who joined and who was lost."""
        before, self._generation = self._generation, generation
        # A worker that missed a generation may have been left behind: it keeps its state, but marks it as stale.
        self._parts.state.stale |= before is not None and before.number < generation.number - 1
        if before is None:
            self._log.event(
                "joined",
                member=self._parts.member_id,
                generation=generation.number,
                rank=generation.rank(self._parts.member_id),
                world_size=len(generation.members),
            )
        elif generation.cause == "lost":
            for member in before.members:
                if generation.rank(member.id) is None:
                    self._log.event("peer_lost", peer=member.worker, generation=generation.number)
        self._change.begin(generation.cause)
        self._waiting_for = ""
        self._parts.heartbeat.watch(generation.members)

    def _hold(self, generation: Generation) -> None:
        """Wait, with the state in memory, until the membership changes: there are too few workers."""
        self.waiting_since = None
        self._parts.heartbeat.tense(False)
        self._say_waiting("below_min", len(generation.members))
        coordinator = self._parts.coordinator
        while not self._overdue():
            view = coordinator.view
            if view.number != generation.number or view.finished:
                return
            lost = lost_members(view, generation, self._parts.member_id)
            if lost:
                raise GroupBroken(f"no further step is possible with {', '.join(lost)}")
            coordinator.wait_for_news(view, time.monotonic() + 0.5)

    def _train_in(self, generation: Generation) -> None:
        """Train until the membership changes or the job is finished. Raise GroupBroken on any failure of a peer."""
        rank, size = generation.rank(self._parts.member_id) or 0, len(generation.members)
        state = self._parts.state
        self._parts.heartbeat.tense(True)
        self._form(generation, rank)
        exchange = handover.Exchange(
            self._still_wanted(generation), self._reports.adopt, self._config.on_drift, self._config.compare_every
        )
        handover.synchronise(self._parts, generation, rank, exchange, self._log)
        self._touch.stay(generation)  # after it, everywhere: this process may have been frozen in between
        self._parts.coordinator.synced(generation.number)
        self._parts.heartbeat.tense(False)
        self._settle(rank)
        batch_size = self._config.step_size(size)
        self._parts.loader.start(Place(state.cursor, rank, size, batch_size, self._config.epochs, state.micro_batch))
        self._meter.start()
        while not self._overdue():
            over = is_over(state, self._config)
            if not self._evaluated(generation, Seat(rank, size), over):
                return None
            if over:
                return self._finish(generation, rank)
            if self._step(generation, rank):
                return None
        return None

    def _step(self, generation: Generation, rank: int) -> bool:
        """Make one step. Return whether all ranks know of the next generation and leave this one now."""
        began = time.monotonic()
        self._pace(generation)
        started = self.waiting_since = time.monotonic()
        prepared = self._parts.loader.next()
        self._reports.begin(self._part(generation, rank, prepared))
        knows = self._knows(generation)
        self._touch.stay(generation)
        outcome = self._parts.stepper.gradients(
            prepared, knows=knows, compare=self._compares(), meanwhile=self._parts.loader.prefetch
        )
        self._touch.stay(generation)
        self._settle(rank)
        self._apply(generation, rank, prepared, outcome, (began, started))
        return outcome.everyone_knows

    def _waits_for_etcd(self, generation: Generation) -> None:
        self.waiting_since = None
        self._say_waiting("etcd", len(generation.members))

    def _apply(
        self, generation: Generation, rank: int, prepared: Prepared, outcome: Outcome, times: tuple[float, float]
    ) -> None:
        state, config, step = self._parts.state, self._config, prepared.step
        size = len(generation.members)
        factor = self._parts.training.schedule(progress(state, self._parts.total, config)) * config.lr_factor(size)
        lr = self._parts.stepper.apply(outcome, factor)
        state.advance(step.after, generation.number)
        state.micro_batch = state.micro_batch or len(step.share(0, size))  # rank 0 has the largest share
        now = time.monotonic()
        report = Report(
            step=state.step,
            epoch=state.cursor.epoch,
            generation=generation.number,
            world_size=size,
            rank=rank,
            loss=outcome.loss,
            lr=lr,
            samples=step.share(rank, size),
            batch_size=len(step.samples),
            step_seconds=now - times[1],
            useful_seconds=now - times[0],
        )
        self._reports.applied(report, self._change.over())

    def _part(self, generation: Generation, rank: int, prepared: Prepared) -> Part:
        """Return this rank's part of the next step."""
        samples = prepared.step.share(rank, len(generation.members))
        return Part(self._parts.state.step + 1, generation.number, rank, samples)

    def _compares(self) -> bool:
        """Return whether the ranks compare their states in the next step; the same on all of them."""
        step, every = self._parts.state.step, self._config.compare_every
        return every > 0 and step > 0 and step % every == 0

    def _settle(self, rank: int) -> None:
        """Report the last applied step, which is final now."""
        if self._reports.settle(rank):
            self._waiting_for = ""

    def _form(self, generation: Generation, rank: int) -> None:
        group = self._parts.group
        addresses = tuple(member.address for member in generation.members)
        group.form(
            generation.uuid,
            rank,
            addresses,
            time.monotonic() + _FORM_SECONDS,
            peers_are_there=self._peers_are_there(generation),
            superseded=lambda: self._parts.coordinator.view.number != generation.number,
        )

    def _still_wanted(self, generation: Generation) -> Callable[[], None]:
        """Return a check for use while waiting for the state. It raises GroupBroken when the wait is pointless."""
        peers_are_there = self._peers_are_there(generation)

        def check() -> None:
            if self._parts.coordinator.view.number != generation.number:
                raise GroupBroken("there is a newer generation")
            if self._overdue():
                raise GroupBroken("this worker must leave, but the others did not let it leave in time")
            self._parts.group.check()
            peers_are_there()

        return check

    def _peers_are_there(self, generation: Generation) -> Callable[[], None]:
        """Return a check for use while waiting for peers. It raises GroupBroken when the process of a peer is gone."""
        peers = [member for member in generation.members if member.id != self._parts.member_id]
        asked_at = time.monotonic()

        def check() -> None:
            nonlocal asked_at
            if time.monotonic() - asked_at < _PROBE_SECONDS:
                return
            gone = [peer.worker for peer in peers if server.is_gone(peer.address)]
            if gone:
                raise GroupBroken(f"lost {', '.join(gone)}")
            asked_at = time.monotonic()

        return check

    def _pace(self, generation: Generation) -> None:
        """Wait as ``--min-step-seconds`` demands, but never delay a change of the membership."""
        until = self._meter.last_step_at + self._config.min_step_seconds
        if time.monotonic() < until:
            self.waiting_since = None
            self._parts.coordinator.wait(lambda view: view.number != generation.number, until)
        self._parts.group.check()
        self._meter.last_step_at = time.monotonic()

    def _evaluated(self, generation: Generation, seat: Seat, over: bool) -> bool:
        """Evaluate if it is due. Return False if it is unfinished and all ranks leave the generation now."""
        if not self._evaluation.is_due(over=over, every=self._config.evaluate_every):
            return True
        self._confirm(generation, seat.rank)
        self._change.goes_on()
        return self._evaluation.run(
            seat,
            knows=lambda: self._knows(generation),
            overdue=self._overdue,
            stay_in_touch=lambda: self._touch.stay(generation),
        )

    def _knows(self, generation: Generation) -> bool:
        """Return whether this worker knows of the next generation."""
        return self._parts.coordinator.view.number > generation.number

    def _confirm(self, generation: Generation, rank: int) -> None:
        """Make the last step final without a next one."""
        self.waiting_since = time.monotonic()
        self._parts.group.confirm()
        self._touch.stay(generation)
        self._settle(rank)

    def _finish(self, generation: Generation, rank: int) -> None:
        """Finish the job, or leave that to the next generation."""
        self._confirm(generation, rank)
        self._ending.finish(generation, rank)

    def _left(self) -> int:
        """End after a planned leave. If no remaining worker has the state, save a checkpoint first."""
        return self._ending.left(self._generation, self._leaving_since, settle=lambda: self._settle(rank=-1))

    def flush_until(self) -> float:
        """Return until when (monotonic) this worker may wait for the checkpoint in progress before it ends."""
        asked = self._leaving_since
        return (time.monotonic() if asked is None else asked + leaving.STEP_SECONDS) + leaving.FLUSH_SECONDS

    def _overdue(self) -> bool:
        """Return whether this worker has waited long enough for the others to let it leave."""
        return self._leaving_since is not None and time.monotonic() - self._leaving_since > leaving.STEP_SECONDS

    def _say_waiting(self, reason: str, workers: int) -> None:
        if self._waiting_for != reason:
            self._waiting_for = reason
            self._log.event(
                "waiting",
                reason=reason,
                workers=workers,
                min_workers=self._config.least_members,
                max_workers=self._config.most_members,
            )
