"""The elastic loop: generation after generation, step after step, until the job is done.

    Loop(config, parts, log).run()      # -> exit code

A step is forward, backward (DDP sums the gradients), a vote, and the commit. The vote is one tiny all-reduce of
every rank's verdict; only if all ranks have voted yes does the optimizer step and the cursor move, everywhere. On any
failure nothing is committed: survivors give the generation up, learn the next one, form its group in the same
process and repeat the step. Should the vote itself be cut short, some ranks may have committed and some not; so
every generation begins with a comparison of step numbers, and who is behind, as a newcomer is, gets the state of
the one that is ahead.

The loss of a rank is the sum over its samples divided by the number of samples in the whole step, so that the sum of
the ranks' gradients is the mean over the batch, however unevenly it is shared out.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from contract import exit_codes, keys
from trainer import handover, sync
from trainer.config import Config
from trainer.data import Augment
from trainer.ending import evaluate, finish
from trainer.errors import Diverged, GroupBroken
from trainer.log import Log
from trainer.membership import Generation, View, lost_members
from trainer.meter import Change, Meter
from trainer.metrics import Committed
from trainer.parts import Parts
from trainer.sampler import Step, plan, steps_per_epoch

_PROBE_SECONDS = 0.5
_LEASE_RETRY_SECONDS = 0.2
_LEAVE_SECONDS = 15.0
_FORM_SECONDS = 20.0


@dataclass(frozen=True)
class Vote:
    """The sum of all ranks' verdicts on a step."""

    committed: bool
    """All ranks have their gradients and hold their lease."""
    switch: bool
    """All ranks know of the next generation."""
    loss: float
    """Mean over the samples of the step."""


class Loop:
    """Trains as one worker until the job is finished or this worker is asked to leave."""

    def __init__(self, config: Config, parts: Parts, log: Log) -> None:
        self._config, self._parts, self._log = config, parts, log
        self._model: nn.Module = parts.state.model
        self._generation: Generation | None = None
        self._forming = False
        self._leaving_since: float | None = None
        self._change = Change()
        self._meter = Meter()
        self._waiting_for = ""

    def leave(self) -> None:
        """SIGTERM: leave at the next step boundary. May be called from any thread, more than once."""
        if self._leaving_since is None:
            self._leaving_since = time.monotonic()
            self._parts.coordinator.leave()

    def membership_changed(self, view: View) -> None:
        """Called by the coordinator's threads: whoever waits for a peer that will not answer is released."""
        generation = self._generation
        if generation is None:
            return
        if view.number < generation.number:
            self._parts.group.interrupt("etcd has lost the membership")
        elif view.number > generation.number and self._forming:
            self._parts.group.interrupt("a newer generation came up")
        else:
            lost = lost_members(view, generation, self._parts.member_id)
            if lost:
                self._parts.group.interrupt(f"lost {', '.join(lost)}")

    def warm_up(self) -> None:
        """Form a group of one and run two passes, so that joining costs the others as little as possible.

        DDP settles the order of its buckets after its first pass; alone, nobody else is needed for that.
        """
        group, state = self._parts.group, self._parts.state
        address = ("127.0.0.1", group.store_port)
        group.form(secrets.randbits(48), 0, (address,), time.monotonic() + _FORM_SECONDS)
        self._model = group.wrap(state.model)
        images, labels = self._batch((0,), 0)
        for _ in range(2):
            torch.autograd.backward(nn.functional.cross_entropy(self._model(images), labels))
            state.optimizer.zero_grad()

    def run(self) -> int:
        """Train. Returns an exit code of ``contract.exit_codes``; raises ConfigError, RecordError or Diverged."""
        while True:
            generation = self._next_generation()
            if generation is None:
                return self._finished() if self._parts.coordinator.view.finished else self._left()
            self._enter(generation)
            try:
                if len(generation.members) < self._config.min_workers:
                    self._hold(generation)
                else:
                    self._train_in(generation)
            except GroupBroken as error:
                self._change.broken()
                self._log.event("step_discarded", generation=generation.number, reason=str(error))
                self._parts.coordinator.ready_after(generation.number)

    def _next_generation(self) -> Generation | None:
        """Wait for the next generation that this worker is in; None when there is nothing left for it to do."""
        coordinator, last = self._parts.coordinator, self._generation.number if self._generation else 0
        while True:
            view = coordinator.view
            inside = view.generation is not None and view.generation.rank(self._parts.member_id) is not None
            if view.finished or self._overdue() or (self._leaving_since is not None and not inside):
                return None
            if inside and view.number > last:
                return view.generation
            if view.generation is not None and not inside:
                self._say_waiting("in_line", len(view.generation.members))
                coordinator.ready_after(view.number)
            coordinator.wait_for_news(view, time.monotonic() + 0.5)

    def _enter(self, generation: Generation) -> None:
        """Say who came and who went."""
        before = self._generation
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
        self._generation = generation
        self._waiting_for = ""

    def _hold(self, generation: Generation) -> None:
        """Too few workers: stand still, with the state in memory, until the membership changes."""
        self._say_waiting("below_min", len(generation.members))
        coordinator = self._parts.coordinator
        while not self._overdue():
            view = coordinator.view
            if view.number != generation.number or view.finished:
                return
            lost = lost_members(view, generation, self._parts.member_id)
            if lost:
                raise GroupBroken(f"lost {', '.join(lost)}")
            coordinator.wait_for_news(view, time.monotonic() + 0.5)

    def _train_in(self, generation: Generation) -> None:
        """Train until the membership changes or the job is finished. Raises GroupBroken on any failure of a peer."""
        rank = generation.rank(self._parts.member_id) or 0
        self._form(generation, rank)
        handover.synchronise(self._parts, generation, rank, self._still_wanted(generation), self._log)
        self._meter.start()
        while not self._overdue():
            if self._parts.state.cursor.epoch >= self._config.epochs:
                return self._finish(rank)
            began = time.monotonic()
            self._pace(generation)
            started = time.monotonic()
            step = self._plan()
            loss = self._forward_backward(step, rank, len(generation.members))
            vote = self._vote(generation, loss)
            if vote.committed:
                self._commit(step)
                self._report(generation, step, vote.loss, started)
                self._measure(generation, step, vote.loss, (began, started))
                self._save(rank)
            else:
                self._await_lease(len(generation.members))
            if vote.switch:
                return None
        return None

    def _form(self, generation: Generation, rank: int) -> None:
        group = self._parts.group
        addresses = tuple((member.host, member.store_port) for member in generation.members)
        self._forming = True
        try:
            group.form(
                generation.uuid, rank, addresses, time.monotonic() + _FORM_SECONDS, self._still_wanted(generation)
            )
        finally:
            self._forming = False
        if not group.keeps_wrapper:
            self._model = group.wrap(self._parts.state.model)

    def _still_wanted(self, generation: Generation) -> Callable[[], None]:
        """What a wait for peers asks now and then: raises GroupBroken when a peer's process is gone."""
        peers = [member for member in generation.members if member.id != self._parts.member_id]
        asked_at = time.monotonic()

        def check() -> None:
            nonlocal asked_at
            view = self._parts.coordinator.view
            if view.number != generation.number:
                raise GroupBroken("a newer generation came up")
            if time.monotonic() - asked_at < _PROBE_SECONDS:
                return
            gone = [peer.worker for peer in peers if sync.is_gone((peer.host, peer.peer_port))]
            if gone:
                raise GroupBroken(f"lost {', '.join(gone)}")
            asked_at = time.monotonic()

        return check

    def _await_lease(self, workers: int) -> None:
        """etcd has been away for longer than a lease lasts: others may train without some of these workers."""
        self._say_waiting("etcd", workers)
        self._parts.coordinator.wait(lambda _: False, time.monotonic() + _LEASE_RETRY_SECONDS)

    def _plan(self) -> Step:
        config = self._config
        return plan(
            self._parts.state.cursor, total=len(self._parts.train), batch_size=config.batch_size, seed=config.seed
        )

    def _batch(self, samples: tuple[int, ...], epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = self._parts.train.batch(samples, Augment(self._config.seed, epoch))
        device = self._parts.group.device
        return images.to(device), labels.to(device)

    def _forward_backward(self, step: Step, rank: int, size: int) -> float:
        """Leave the gradients of the whole step in the parameters; this rank's part of the mean loss."""
        state, mine = self._parts.state, step.share(rank, size)
        # A rank without a sample still takes part in the all-reduce, with gradients of zero.
        images, labels = self._batch(mine or step.samples[:1], state.cursor.epoch)
        state.optimizer.zero_grad()
        total = nn.functional.cross_entropy(self._model(images), labels, reduction="sum") * bool(mine)
        loss = total / len(step.samples)
        torch.autograd.backward(loss)
        return float(loss.item())

    def _vote(self, generation: Generation, loss: float) -> Vote:
        group, coordinator = self._parts.group, self._parts.coordinator
        group.check()
        knows = coordinator.view.number > generation.number
        ballot = torch.tensor([coordinator.lease_holds(), knows, loss], dtype=torch.float64, device=group.device)
        group.all_reduce(ballot)
        committed, switch, mean = ballot.tolist()
        if not math.isfinite(mean):
            raise Diverged(
                f"the loss of step {self._parts.state.step + 1} is {mean}: lower --lr and look at the data; "
                "the last checkpoint is kept"
            )
        return Vote(committed == len(generation.members), switch == len(generation.members), mean)

    def _commit(self, step: Step) -> None:
        state = self._parts.state
        done = state.step / (self._config.epochs * steps_per_epoch(len(self._parts.train), self._config.batch_size))
        for group in state.optimizer.param_groups:
            group["lr"] = self._config.lr * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        state.optimizer.step()
        state.step += 1
        state.cursor = step.after

    def _report(self, generation: Generation, step: Step, loss: float, started: float) -> None:
        self._waiting_for = ""
        self._meter.count(len(step.samples))
        state, first = (
            self._parts.state,
            self._change.committed(self._log, state_step=self._parts.state.step, generation=generation),
        )
        if first or state.step % self._config.report_every == 0:
            self._log.progress(
                step=state.step,
                epoch=state.cursor.epoch + 1 if state.cursor.offset else state.cursor.epoch,
                world_size=len(generation.members),
                generation=generation.number,
                loss=loss,
                samples_per_s=self._meter.rate(),
                step_seconds=time.monotonic() - started,
                rank=generation.rank(self._parts.member_id),
            )

    def _measure(self, generation: Generation, step: Step, loss: float, times: tuple[float, float]) -> None:
        rank, size, now = generation.rank(self._parts.member_id) or 0, len(generation.members), time.monotonic()
        began, started = times
        self._parts.metrics.committed(
            Committed(
                step=self._parts.state.step,
                epoch=step.after.epoch,
                world_size=size,
                generation=generation.number,
                loss=loss,
                own_samples=len(step.share(rank, size)),
                step_seconds=now - started,
                useful_seconds=now - began,
            )
        )

    def _pace(self, generation: Generation) -> None:
        """Hold the demonstration's pace, but never hold up a change of the membership."""
        until = self._meter.last_step_at + self._config.min_step_seconds
        if time.monotonic() < until:
            self._parts.coordinator.wait(lambda view: view.number != generation.number, until)
        self._parts.group.check()
        self._meter.last_step_at = time.monotonic()

    def _save(self, rank: int) -> None:
        state = self._parts.state
        if rank == 0 and state.step % self._config.checkpoint_every == 0:
            self._parts.checkpoints.save(state.step, state.pack())

    def _finish(self, rank: int) -> None:
        """Rank 0 measures, saves and records the end; the others wait for that record."""
        state, coordinator, group = self._parts.state, self._parts.coordinator, self._parts.group
        if rank == 0:
            accuracy = evaluate(state.model, self._parts.val, group.device)
            self._parts.checkpoints.save(state.step, state.pack())
            record = {"version": keys.FINISHED_VERSION, "step": state.step, "accuracy": accuracy}
            finish(json.dumps(record).encode(), self._parts.checkpoints, coordinator, self._log)
        while not coordinator.wait(lambda view: bool(view.finished), time.monotonic() + 0.5) and not self._overdue():
            group.check()

    def _finished(self) -> int:
        record = json.loads(self._parts.coordinator.view.finished)
        state = self._parts.state
        digest = state.digest() if state.present and state.step == record["step"] else None
        self._log.event("finished", accuracy=record["accuracy"], step=record["step"], parameters=digest)
        return exit_codes.FINISHED

    def _left(self) -> int:
        """Out of the membership, in good order; who leaves nobody behind that has the state leaves a checkpoint."""
        state, successor = self._parts.state, self._parts.coordinator.view.generation
        heirs = (
            [member for member in self._generation.members if successor and successor.rank(member.id) is not None]
            if self._generation
            else []
        )
        if state.present and (not heirs or self._overdue()):
            self._parts.checkpoints.save(state.step, state.pack())
        self._log.event(
            "left",
            member=self._parts.member_id,
            step=state.step if state.present else None,
            seconds=time.monotonic() - (self._leaving_since or time.monotonic()),
        )
        return exit_codes.LEFT

    def _overdue(self) -> bool:
        """Whether the others had long enough to let this worker go."""
        return self._leaving_since is not None and time.monotonic() - self._leaving_since > _LEAVE_SECONDS

    def _say_waiting(self, reason: str, workers: int) -> None:
        if self._waiting_for != reason:
            self._waiting_for = reason
            self._log.event(
                "waiting",
                reason=reason,
                workers=workers,
                min_workers=self._config.min_workers,
                max_workers=self._config.max_workers,
            )
