"""The loop of a training that samples divide into steps: step after step, until the job is done.

    loop = Loop(session, material, join)
    for prepared in loop.steps():        # this worker's share of the next step
        loop.make(prepared)
    raise SystemExit(session.end())

All waiting, forming of groups, handing over of the state, evaluating and finishing happens between two steps, in the
generator. ``make`` raises no GroupBroken: the generator handles it before it yields again, and then yields this
worker's share of the same step in the next generation. So the caller sees only shares. The first ones are a rehearsal
in a group of one (see ``warmup``); then the worker joins the others.

A loop of a script (see ``script.own_loop``) makes the passes itself, and ``sum`` and ``apply`` in place of ``make``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from enum import Enum

from tidewater.elastic.config import Config
from tidewater.elastic.data.loader import Place, Prepared
from tidewater.elastic.data.sampler import without
from tidewater.elastic.errors import BadSamples, ConfigError, GroupBroken
from tidewater.elastic.group.group import await_all
from tidewater.elastic.method.outer import steady
from tidewater.elastic.peer import drift
from tidewater.elastic.session.assembly import ends_without_a_group
from tidewater.elastic.session.evaluation import Evaluation, Seat
from tidewater.elastic.session.session import Session
from tidewater.elastic.session.state import State, refuse_divergence
from tidewater.elastic.session.step import Outcome, Vote, Voter
from tidewater.elastic.session.warmup import rehearsals
from tidewater.elastic.session.worker import Material, Meeting, Share, is_best, save


class Pause(Enum):
    """What a loop of a script's own gets between two steps."""

    PAUSE = "pause"
    """Before the first step that this worker makes in an epoch."""
    EPOCH_END = "epoch end"
    """At the end of an epoch or of training, for the validations of the script: again until they are complete."""


class KeepingFailures:
    """A context that leaves a GroupBroken to the generator of a loop, which handles it before it yields again."""

    failure: GroupBroken | None = None
    """What the step has met."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, GroupBroken):
            return False
        self.failure = error
        return True


class Loop:
    """Trains as one worker until the job is finished or this worker is asked to leave.

    Args:
        session: Of this worker.
        material: What is trained.
        join: Called after the rehearsal; lets the others know of this worker. It may raise ``assembly.Ended``.
    """

    def __init__(self, session: Session, material: Material, join: Callable[[], None] = lambda: None) -> None:
        self._session, self._material, self._join = session, material, join
        self._config, self._state = session.config, session.worker.state
        self._meter = session.reports.meter
        self.evaluation = Evaluation(session, material)
        self._meeting: Meeting
        self._place: Place
        """Where this generation began in the data."""
        self.rank = -1
        """Of this worker in the last step that was yielded; -1 before it has joined."""
        self._began = self._ready = 0.0
        self._bad: dict[int, str] = {}
        """Samples that this worker could not read, with their errors, which the others don't know of yet."""
        self.keeping_failures = KeepingFailures()
        self.rehearses = False
        """Whether this is the rehearsal, before the others know of this worker."""
        self._summed: tuple[Prepared, Share, Outcome]
        """The step that is to be applied."""
        self._everyone_knows = False
        """Whether all ranks knew of the next generation when they made the last step."""
        self._has_said_why = False
        self._epoch = -1
        """The last one before which a pause was yielded."""
        self.validates = False
        """Whether the script has its turn at the end of each epoch."""

    def steps(self) -> Iterator[Prepared]:
        """Yield this worker's share of each step. Call ``make`` with it before the next one.

        Raise ConfigError, RecordError or Drifted; ``assembly.Ended`` if this worker ends before it has joined.
        """
        return (each for each in self.steps_and_pauses() if not isinstance(each, Pause))

    def steps_and_pauses(self) -> Iterator[Prepared | Pause]:
        """Do the same, but also yield what comes between the steps: the end of an epoch only with ``validates``."""
        yield from self._rehearse()
        self._join()
        while (meeting := self._session.meet()) is not None:
            try:
                yield from self._steps_of(meeting)
            except GroupBroken as error:
                if isinstance(error, BadSamples):
                    self._bad |= error.errors
                    self._session.worker.group.interrupt(str(error))
                self._session.give_up(error)

    def make(self, prepared: Prepared) -> None:
        """Make the step with the training's loss. Raise Diverged or ConfigError."""
        stepper = self._material.stepper

        def sums(vote: Voter) -> Outcome:
            pace = steady if self.rehearses else self._pace
            return stepper.gradients(prepared, vote, compare=self.compares(), meanwhile=self.meanwhile, pace=pace)

        if self.sum(prepared, sums):
            self.apply()

    def sum(self, prepared: Prepared, sums: Callable[[Voter], Outcome]) -> bool:
        """Sum the gradients of all workers. Return whether they stand; then `apply` or `applying` must follow.

        They don't in the rehearsal, nor if a peer fails. ``sums`` computes them, casts the vote that it is given, and
        may raise GroupBroken.
        """
        try:
            if self.rehearses:
                sums(Vote)
                return False
            share = self._share(prepared)
            self._summed = prepared, share, self._session.summed(share, lambda: sums(self._vote))
        except GroupBroken as error:
            self.keeping_failures.failure = error
            return False
        return True

    def apply(self) -> None:
        """Step the optimizers with the sums."""
        _, _, outcome = self._summed
        self._applied(self._material.stepper.apply(outcome, self._factor()))

    @contextmanager
    def applying(self) -> Iterator[None]:
        """Give a context in which the optimizers are to be stepped with the sums."""
        _, _, outcome = self._summed
        with self._material.stepper.applying(outcome, self._factor()) as lr:
            yield
        self._applied(lr)

    @property
    def has_failed(self) -> bool:
        """Whether the step has failed, so that its other passes are of no use."""
        return self.keeping_failures.failure is not None

    def compares(self) -> bool:
        """Return whether the ranks compare their states in the next step; the same on all of them."""
        step, every = self._state.step, self._config.compare_every
        return every > 0 and step > 0 and (step % every == 0 or step == self._session.reports.save_after)

    def meanwhile(self) -> None:
        """Do what this worker can do while it waits for the sums of the others."""
        if not self.rehearses:
            self._material.loader.prefetch()

    def _share(self, prepared: Prepared) -> Share:
        step = prepared.step
        return Share(
            samples=step.share(self._place.rank, self._place.size),
            batch_size=len(step.samples),
            after=step.after,
            began=self._began,
            ready=self._ready,
        )

    def _vote(self) -> Vote:
        return Vote(
            knows=self._session.knows(),
            stops=bool(self._material.requests.stop),
            saves=self._meeting.rank == 0 and self._session.reports.is_time_to_save(),
            work_seconds=self._session.stragglers.work_seconds,
        )

    def _factor(self, done: int = 0, whole: int = 1) -> float:
        """Return the factor on the learning rates when ``done`` of the ``whole`` samples of the step have been used."""
        share = progress(self._state, self._material.total, self._config, done, whole)
        return self._material.training.schedule(share) * self._config.lr_factor(self._place.size)

    def _pace(self, done: int, whole: int) -> float:
        """Do the same between inner steps. Raise GroupBroken if this worker must leave before the step ends, or if the
        others have continued without it: it may be cut off from etcd, or frozen, while it makes them."""
        if self._session.is_overdue():
            raise GroupBroken("this worker was asked to leave, and the step takes too long")
        self._session.check()
        return self._factor(done, whole)

    def _applied(self, lr: float) -> None:
        prepared, share, outcome = self._summed
        # Rank 0 has the largest share.
        self._state.micro_batch = self._state.micro_batch or len(prepared.step.shares(0, self._place.size)[0])
        self._session.applied(share, outcome, lr)
        self._everyone_knows, self._state.stopped = outcome.everyone_knows, outcome.stops
        if outcome.saves:
            self._session.reports.save_after = self._state.step

    def _rehearse(self) -> Iterator[Prepared | Pause]:
        """Yield the steps of the rehearsal. Raise ``assembly.Ended`` if even a group of this worker alone breaks."""
        session, material = self._session, self._material
        self.rehearses = True
        with ends_without_a_group(session.log):
            yield from rehearsals(
                session.worker,
                material,
                session.log,
                most=self._config.step_size(1),
                check=self._raise_failure,
                own_loop=material.own_loop,
            )
            if self.validates:
                with self._state.attributes.rehearsal():
                    yield Pause.EPOCH_END
                self.evaluation.refuse_unfinished()
        self.rehearses = False

    def _raise_failure(self) -> None:
        failure, self.keeping_failures.failure = self.keeping_failures.failure, None
        if failure:
            raise failure

    def _steps_of(self, meeting: Meeting) -> Iterator[Prepared | Pause]:
        """Yield the steps and pauses of a generation, until the membership changes or the job is finished.

        Raise GroupBroken.
        """
        session, state, config = self._session, self._state, self._config
        self._meeting, self._everyone_knows, first = meeting, False, True
        self.rank, processes = meeting.rank, meeting.processes
        seat = Seat(meeting.rank, meeting.size, meeting.index, meeting.shards)
        batch_size = config.step_size(processes) * (config.sync_every or 1)
        inner = config.step_size(processes) if config.sync_every else 0
        self._leave_out()
        rank = meeting.process
        self._place = Place(
            state.cursor, rank, processes, batch_size, config.epochs, state.micro_batch, inner, meeting.shards
        )
        self._material.loader.start(self._place)
        self._meter.start()
        while not (self._everyone_knows or session.is_overdue()):
            over = is_over(state, config)
            if state.stopped:
                self._say_why()
            if over and config.compare_every:
                self._compare()
            due = self.evaluation.is_due(over=over, every=1 if self.validates else config.evaluate_every)
            if due and not (yield from self._evaluated(seat)):
                return
            # Again in a generation that begins here: a rank may have been lost in it.
            if 0 < state.step == state.evaluated and not over:
                self._agree_to_stop()
                if not state.stopped:  # then it is saved at the end, with its score
                    self._keep_best(seat.rank)
            if over:
                session.finish()
                return
            if state.stopped:  # since the evaluation
                continue
            if state.cursor.epoch != self._epoch:
                self._epoch = state.cursor.epoch
                yield Pause.PAUSE
                if state.stopped or session.is_overdue():  # not otherwise: only newcomers would sum again before a step
                    continue
            yield self._next()
            self._raise_failure()
            # The change is over as soon as its first step is final. A step that is compared is final after that only.
            if first and not self.compares():
                session.confirm(before_a_step=True)
            first = False

    def _leave_out(self) -> None:
        """Leave out the samples that any worker could not read. Collective. Raise GroupBroken or, on all, ConfigError.

        The ranks are at the same place, and may know of different samples: one of them may have been lost in this.
        """
        state, config = self._state, self._config
        skips = config.bad_samples == "skip"
        if not skips and not state.cursor.skipped:
            return
        total = self._material.total or 0  # a stream, which may have no total, can't skip
        known, mine = self._agreed() if skips else (set[int](), set[int]())
        state.cursor = without(state.cursor, known, total=total, seed=config.seed)
        for sample in sorted(mine):
            self._session.log.event("sample_skipped", sample=sample, error=self._bad[sample], skipped=len(known))
        self._bad = {}
        if len(known) > config.max_bad_samples or len(known) == total:
            await_all(self._session.worker.group)
            remedy = "is the data there?" if len(known) == total else "repair them, or raise --max-bad-samples."
            raise ConfigError(
                f"{len(known)} of {total} samples can't be read, and --max-bad-samples is {config.max_bad_samples}: "
                f"{remedy} The event sample_skipped in the workers' logs names each"
            )

    def _agreed(self) -> tuple[set[int], set[int]]:
        """Return the samples that any worker could not read, and those that this one has to report. Collective.

        It reports none that another worker has found, too, in a generation without this one.
        """
        self._session.waiting_since = time.monotonic()
        mine = json.dumps([self._state.cursor.skipped, list(self._bad)]).encode()
        rows = [json.loads(each) for each in self._session.together(lambda: self._session.worker.group.gather(mine))]
        self._session.waiting_since = None
        known = {sample for row in rows for sample in row[0]}
        before = {sample for row in rows[: self._meeting.rank] for sample in row[1]}
        return known.union(*(row[1] for row in rows)), self._bad.keys() - known - before

    def _next(self) -> Prepared:
        """Return this worker's share of the next step, not before ``--min-step-seconds`` allow it."""
        self._began = time.monotonic()
        self._session.pause(self._meter.last_step_at + self._config.min_step_seconds)
        self._ready = self._meter.last_step_at = self._session.waiting_since = time.monotonic()
        return self._material.loader.next()

    def _compare(self) -> None:
        """Compare the states after the last step: no further step does that. Collective. Raise GroupBroken."""
        check = drift.checksum(self._state.tensors(), self._session.worker.group.device)
        rows = self._session.exchange(drift.halves(check))
        if self._session.any_of(any(row != rows[0] for row in rows)):
            self._state.suspect = True
            raise GroupBroken("the states of the workers differ")

    def _evaluated(self, seat: Seat) -> Generator[Pause, None, bool]:
        """Evaluate, and let the script do so. Return False if it is unfinished, and all ranks leave now."""
        session, evaluation = self._session, self.evaluation
        session.confirm()
        session.change.goes_on()
        evaluation.begin(seat)
        evaluation.measure()
        if self.validates and not evaluation.interrupted:
            yield Pause.EPOCH_END
            self._raise_failure()
        return evaluation.finish(compare=self.validates)

    def _keep_best(self, rank: int) -> None:
        """Save the state if its score is the best one. Raise Diverged, on all ranks, if it is not finite."""
        if self._state.score is None:
            return
        refuse_divergence(self._state)
        if rank == 0 and self._session.decided(is_best(self._session.worker)):
            save(self._session.worker, if_best=True)

    def _agree_to_stop(self) -> None:
        """End training if a hook has asked for it on any rank. Collective. Raise GroupBroken.

        Also without hooks on this rank: a script may have given them to another one.
        """
        rows = self._session.exchange([float(bool(self._material.requests.stop))])
        self._state.stopped = self._session.any_of(any(stops for (stops,) in rows))

    def _say_why(self) -> None:
        """Log, once, that training ends early."""
        if not self._has_said_why:
            self._has_said_why = True
            reason = self._material.requests.stop or "another worker has asked for it"
            self._session.log.event("stopped", step=self._state.step, reason=reason)


def is_over(state: State, config: Config) -> bool:
    """Return whether training has ended with the last applied step."""
    return state.stopped or state.cursor.epoch >= config.epochs or 0 < config.max_steps <= state.step


def progress(state: State, total: int | None, config: Config, done: int = 0, whole: int = 1) -> float:
    """Return the share of the training that is done, from 0 to 1, by what ends it first.

    Args:
        state: Where training is.
        total: Samples in an epoch; None if it is not known, and only ``--max-steps`` counts.
        config: Has the numbers of epochs and of steps.
        done: Samples that this step has used, between inner steps.
        whole: All samples of this step.
    """
    samples = 0.0
    if total:  # what a stream says of its length may be wrong
        samples = (state.cursor.epoch + min(state.cursor.offset + done, total) / total) / config.epochs
    return max(samples, (state.step + done / whole) / config.max_steps) if config.max_steps else samples
