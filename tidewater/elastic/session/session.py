"""One worker's part in a job, for a loop that decides what a step is.

    with open_session(config, prepare) as session:      # see ``assembly``
        while meeting := session.meet():                # waits for a generation; then all its members have one state
            try:
                while …:
                    rows = session.exchange((1, 32))    # a row of numbers of each worker
                    session.applied(share, session.summed(share, sums), step())     # then the optimizers' step
            except GroupBroken as error:
                session.give_up(error)                  # what was not applied has to be repeated after the next `meet`
        code = session.end()

A rank *applies* a step when all its gradients have been summed. If anything fails, nothing is applied: the survivors
give the generation up, form the group of the next one in the same process and repeat the step. A failure can happen
when only some ranks have received their sums, so that only they have applied the step. Each generation therefore begins
with a comparison, and ranks that are behind, newcomers included, get the state of the rank ahead (see ``handover``).

A step is *final* when the next sum over the ranks has succeeded: that of the gradients of the next step, an exchange or
a confirmation, as after the first step of a generation. Only final steps are reported, counted and saved. No rank
contributes to the next sum before it has applied this step, so every member of the generation has a final step. A step
that a rank applied while it was being cut off never becomes final; the rank drops it when it returns. So two groups
never both make a step final, whatever the network does, and otherwise no extra round trip is needed for a vote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidewater.contract import exit_codes, leaving
from tidewater.elastic.config import Config
from tidewater.elastic.errors import BadSamples, ConfigError, GroupBroken, OutOfMemory
from tidewater.elastic.membership.rules import Generation, Seat, View, lost_members
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.meter import Change
from tidewater.elastic.peer.stragglers import Stragglers
from tidewater.elastic.session import handover
from tidewater.elastic.session.ending import Ending
from tidewater.elastic.session.fencing import Fence
from tidewater.elastic.session.liveness import Waiting, peers_alive, still_wanted, until_changed
from tidewater.elastic.session.reports import Part, Reports
from tidewater.elastic.session.state import made_in
from tidewater.elastic.session.step import Outcome
from tidewater.elastic.session.worker import Meeting, Share, Worker
from tidewater.elastic.training import Report

_Result = TypeVar("_Result")
_FORM_SECONDS = 20.0
_MOST_OWN_FAILURES = 3
"""Groups in a row that may fail for a cause in this process before it leaves."""


class Session:
    """One worker's part, until the job is finished or this worker is asked to leave. For one thread.

    Any thread may call ``leave``, ``membership_changed`` and ``peer_silent``.
    """

    def __init__(self, config: Config, worker: Worker, log: Log) -> None:
        self.config, self.worker, self.log = config, worker, log
        self.change = Change()
        self.reports = Reports(config, worker, log)
        self.waiting_since: float | None = None
        """Monotonic time since which this worker waits for its peers, or None. If it waits long, the heartbeat pings
        them."""
        self._generation: Generation | None = None
        self._met_in: Generation | None = None
        """The last generation that began with the same state in all members."""
        self._fruitful = 0  # see ``Member``
        self._meets = False
        self._unconnected = ""  # why this worker can't sum with the others; empty if it can
        self.stragglers = Stragglers(log, worker.metrics)
        self._leaving_since: float | None = None
        self._fence = Fence(worker, overdue=self.is_overdue, waits=self._waits_for_etcd)
        self.ending = Ending(worker, log, self._fence, overdue=self.is_overdue)
        self._waiting = Waiting(config, log)
        self._contributed = (0, 0)
        """Step and generation of the last step to which this worker has contributed."""
        self._waited = 0.0  # seconds for which this worker has waited for the others in the last sums

    def leave(self) -> None:
        """Leave at the next step boundary (SIGTERM). May be called more than once."""
        if self._leaving_since is None:
            self._leaving_since = time.monotonic()
            self.worker.coordinator.leave()

    def membership_changed(self, view: View) -> None:
        """Interrupt a wait for a peer that will not answer. Called by the coordinator's threads."""
        if (generation := self._generation) is None:
            return
        if view.number < generation.number:
            self.worker.group.interrupt("etcd has lost the membership")
        else:
            if lost := lost_members(view, generation, self.worker.member_id):
                self.worker.group.interrupt(f"no further step is possible with {', '.join(lost)}")

    def peer_silent(self, member: Seat) -> None:
        """Give up a peer that is frozen or cut off. Called by the heartbeat's thread."""
        self.log.event("peer_silent", peer=member.worker)
        self.worker.group.interrupt(f"no answer from {member.worker}")

    def waits(self) -> bool:
        """Return whether this worker has done its part, and waits for others. Any thread may call this."""
        return self._meets or bool(self._waiting.reason) or self.worker.group.waits()

    @property
    def is_leaving(self) -> bool:
        """Whether this worker was asked to leave."""
        return self._leaving_since is not None

    def is_overdue(self) -> bool:
        """Return whether this worker has waited long enough for the others to let it leave."""
        return self._leaving_since is not None and time.monotonic() - self._leaving_since > leaving.STEP_SECONDS

    def knows(self) -> bool:
        """Return whether this worker knows of a newer generation than that of the last meeting."""
        return self.worker.coordinator.view.number > self._current.number

    def meet(self, nothing_left: Callable[[], bool] = lambda: False) -> Meeting | None:
        """Enter the next generation. Return when all its members have the same state, which is that of the job.

        Return None if the job is finished or this worker leaves. Raise ConfigError, RecordError or Drifted.

        Args:
            nothing_left: Returns whether all data has been trained. Then there is no step to wait for, and a worker
                that the others have left behind, because they have ended, meets with fewer than the minimum.
        """
        self._meets = True
        try:
            while (generation := self._next_generation()) is not None:
                self._enter(generation)
                try:
                    if len(generation.members) >= self.config.least_members or nothing_left():
                        return self._met(generation)
                    self._hold(generation)
                except GroupBroken as error:
                    self.give_up(error)
            return None
        finally:
            self._meets = False

    def exchange(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of all workers, by rank; the last step is final then. Collective. Raise GroupBroken."""
        generation, rank, width = self._current, self.worker.group.rank, len(row)
        table = [0.0] * width * len(generation.members)
        table[rank * width : (rank + 1) * width] = map(float, row)
        self.waiting_since = time.monotonic()
        sums = list(self.worker.group.tally(table))
        self._fruitful, self.worker.group.own_failures = generation.number, 0
        self.waiting_since = None
        self.stragglers.together()
        self._settle()
        return [sums[first : first + width] for first in range(0, len(sums), width)]

    def confirm(self, *, before_a_step: bool = False) -> None:
        """Make the last step final without a next one. Collective. Raise GroupBroken. ``before_a_step``: a step
        follows, and ``on_step`` is called after its passes, as always."""
        self.waiting_since = time.monotonic()
        self.worker.group.confirm()
        self.stragglers.together()
        self._settle(before_a_step=before_a_step)

    def summed(self, share: Share, sums: Callable[[], Outcome]) -> Outcome:
        """Make the sums of a step together with the other workers; the step before is final then. Collective.

        ``sums`` computes and sums the gradients. The optimizers are to be stepped next, and then comes ``applied``.
        Raise GroupBroken on any failure of a peer: then this step has changed nothing here.
        """
        generation, rank = self._current, self.worker.group.rank
        self._contributed = self.worker.state.step + 1, generation.number
        self.reports.begin(Part(*self._contributed, rank, share.samples))
        self.waiting_since = share.ready
        self._before_sums()
        waited = self.worker.group.waited_seconds
        outcome = sums()
        self._waited = self.worker.group.waited_seconds - waited
        self._fruitful, self.worker.group.own_failures = generation.number, 0
        self.stragglers.worked(share.ready - share.began + self._waited)
        self.stragglers.step(generation.members, rank, outcome.work_seconds, share.batch_size)
        self._settle(after_passes=True)
        return outcome

    def applied(self, share: Share, outcome: Outcome, lr: float) -> None:
        """Note that the optimizers were stepped, with that learning rate."""
        state, generation = self.worker.state, self._current
        state.advance(share.after, generation.number)
        now = time.monotonic()
        report = Report(
            step=state.step,
            epoch=state.cursor.epoch,
            generation=generation.number,
            world_size=len(generation.members),
            rank=self.worker.group.rank,
            loss=outcome.loss,
            lr=lr,
            samples=share.samples,
            batch_size=share.batch_size,
            step_seconds=now - share.ready,
            wait_seconds=self._waited,
            useful_seconds=now - share.began,
            writes=self.worker.group.rank == 0 and self.worker.writes,
        )
        self.reports.applied(report, self.change.over())
        self.waiting_since = None

    def together(self, call: Callable[[], _Result]) -> _Result:
        """Return what a collective call returns. All processes of this worker make it, and it fails on all or none."""
        return call()

    def over_processes(self, sums: Sequence[float]) -> list[float]:
        """Return the sums over the processes of this worker. All of them call this."""
        return list(sums)

    def decided(self, value: _Result) -> _Result:
        """Return what the first process of this worker has found. All of them call this."""
        return value

    def any_of(self, flag: bool) -> bool:
        """Return whether any process of this worker has found this. All of them call this."""
        return flag

    def check(self) -> None:
        """Wait while etcd is unreachable for long. Raise GroupBroken if others have continued without this worker."""
        self._fence.check(self._current)

    def pause(self, until: float) -> None:
        """Wait until that monotonic time, but not longer than until the membership changes. Raise GroupBroken."""
        if time.monotonic() < until:
            number, self.waiting_since = self._current.number, None
            self.worker.coordinator.wait(lambda view: view.number != number, until)
        self.worker.group.check()

    def give_up(self, error: GroupBroken) -> None:
        """Give the generation up, and let the others know."""
        number, self.waiting_since = self._current.number, None
        if isinstance(error, OutOfMemory):
            self.log.event("out_of_memory", micro_batch=self.worker.state.micro_batch, reason=str(error))
        if isinstance(error, OutOfMemory | BadSamples):
            self._fruitful = number
        self.change.broken()
        self.log.event("step_discarded", generation=number, reason=str(error))
        self.worker.heartbeat.tense(True)
        if (failures := self.worker.group.own_failures) >= _MOST_OWN_FAILURES:
            self._leave_unconnected(f"{failures} groups in a row failed for a cause in this process: {error}")
        self.worker.coordinator.ready_after(number, fruitful=self._fruitful)

    def finish(self) -> None:
        """Finish the job, or leave that to the next generation. Collective. Raise GroupBroken."""
        self.confirm()
        self._meets = self.worker.group.rank > 0  # as in ``meet``, which follows: they wait for rank 0's checkpoint
        self.ending.finish(self._current, self.worker.group.rank)

    def end(self) -> int:
        """End after ``meet`` has returned None. Return an exit code of ``contract.exit_codes``.

        If this worker leaves, and no remaining worker has the state, save a checkpoint first.
        """
        if self.worker.coordinator.view.finished:
            return self.ending.finished()
        last = (self._generation, self._met_in, self._leaving_since)
        code = self.ending.left(*last, settle=lambda: self._report(rank=-1))
        return self.leaves_with if code == exit_codes.LEFT else code

    @property
    def leaves_with(self) -> int:
        """Return the exit code with which this worker leaves a job that goes on."""
        return exit_codes.UNCONNECTED if self._unconnected else exit_codes.LEFT

    def flush_until(self) -> float:
        """Return until when (monotonic) this worker may wait for the checkpoint in progress before it ends."""
        asked = self._leaving_since
        return (time.monotonic() if asked is None else asked + leaving.STEP_SECONDS) + leaving.FLUSH_SECONDS

    @property
    def _current(self) -> Generation:
        if self._generation is None:
            raise GroupBroken("this worker is in no generation yet")
        return self._generation

    def _next_generation(self) -> Generation | None:
        """Wait for the next generation that this worker is in. Return None if the job is finished or this worker
        leaves."""
        coordinator, last = self.worker.coordinator, self._generation.number if self._generation else 0
        while True:
            view = coordinator.view
            inside = view.generation is not None and view.generation.rank(self.worker.member_id) is not None
            if view.finished or self.is_overdue() or (self.is_leaving and not inside):
                return None
            if inside and view.number > last:
                if not last:  # several workers may have been announced at the same time
                    self._refuse_mismatch(view)
                return view.generation
            if view.generation is not None and view.generation.left_out == self.worker.member_id:
                self._leave_unconnected("with this worker several groups in a row broke before they made a step")
            elif view.generation is not None and not inside:
                self._refuse_mismatch(view)
                self._waiting.say("in_line", len(view.generation.members))
                coordinator.ready_after(view.number)
            coordinator.wait_for_news(view, time.monotonic() + 0.5)

    def _leave_unconnected(self, reason: str) -> None:
        """Leave because no step is possible with this worker."""
        if not self._unconnected:
            self._unconnected = f"{reason}; the others go on without it"
            self.log.event("unconnected", reason=self._unconnected)
            self.leave()

    def _refuse_mismatch(self, view: View) -> None:
        if reason := self.worker.refusal(view):
            raise ConfigError(reason)

    def _enter(self, generation: Generation) -> None:
        """Enter a generation, and log who joined and who was lost."""
        before, self._generation = self._generation, generation
        # A worker that missed a generation may have been left behind: it keeps its state, but marks it as stale.
        self.worker.state.stale |= before is not None and before.number < generation.number - 1
        if before is None:
            self.log.event(
                "joined",
                member=self.worker.member_id,
                generation=generation.number,
                rank=generation.rank(self.worker.member_id),
                world_size=len(generation.members),
            )
        elif generation.cause == "lost":
            for member in before.members:
                if generation.rank(member.id) is None:
                    self.log.event("peer_lost", peer=member.worker, generation=generation.number)
        self.change.begin(generation.cause)
        self.reports.save_after = 0  # not all members know of it
        self._waiting.over()
        self.worker.heartbeat.watch(generation.members)

    def _hold(self, generation: Generation) -> None:
        """Wait, with the state in memory, until the membership changes: there are too few workers."""
        self.waiting_since = None
        self.worker.heartbeat.tense(False)
        self._waiting.say("below_min", len(generation.members))
        until_changed(self.worker, generation, self.is_overdue)

    def _met(self, generation: Generation) -> Meeting:
        """Form the group, and bring all ranks to the same state. Raise GroupBroken on any failure of a peer."""
        rank, state, loads = generation.rank(self.worker.member_id) or 0, self.worker.state, self.reports.loads
        had, (step, number) = state.present, self._contributed
        self.worker.heartbeat.tense(True)
        self.change.meets()
        reported = self._come_together(generation, rank)
        self.worker.coordinator.synced(generation.number)
        self.worker.heartbeat.tense(False)
        self.change.together()
        included = step > 0 and made_in(state.runs, step, state.step) == number
        self._met_in = generation
        self.stragglers.begin()
        self._report(rank, before_a_step=not self.any_of(reported))
        return Meeting(rank, len(generation.members), had and self.reports.loads > loads, included, generation.number)

    def _come_together(self, generation: Generation, rank: int) -> bool:
        self._form(generation, rank)
        self.change.connected()
        reported = handover.synchronise(self.worker, generation, rank, self._exchange(generation), self.log)
        self._fence.check(generation)  # after it, everywhere: this process may have been frozen in between
        return reported

    def _exchange(self, generation: Generation) -> handover.Exchange:
        config, wanted = self.config, still_wanted(self.worker, generation, self.is_overdue)
        return handover.Exchange(wanted, self.reports.adopt, config.on_drift, config.compare_every, config.begin_again)

    def _form(self, generation: Generation, rank: int) -> None:
        self.worker.group.form(
            generation.uuid,
            rank,
            tuple(member.address for member in generation.members),
            time.monotonic() + _FORM_SECONDS,
            peers_are_there=peers_alive(generation, self.worker.member_id),
            superseded=lambda: self.worker.coordinator.view.number != generation.number,
        )

    def _before_sums(self) -> None:
        self._fence.check(self._current)

    def _settle(self, *, before_a_step: bool = False, after_passes: bool = False) -> None:
        """Report the last step, which is final now, unless others have continued without this worker."""
        self._refuse_left_behind()
        self._report(self.worker.group.rank, before_a_step=before_a_step, after_passes=after_passes)

    def _refuse_left_behind(self) -> None:
        self._fence.check(self._current)

    def _report(self, rank: int, *, before_a_step: bool = False, after_passes: bool = False) -> None:
        if before_a_step:
            self.reports.announce()
        else:
            self.reports.settle(rank, after_passes=after_passes)
        self._waiting.over()

    def _waits_for_etcd(self, generation: Generation) -> None:
        self.waiting_since = None
        self._waiting.say("etcd", len(generation.members))
