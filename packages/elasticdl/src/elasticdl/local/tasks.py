"""The tasks of a job in one process: the master's own decisions, without a network.

Evaluations are of exactly the version at which they fall due. Each is done at once, in the middle of a training task:
no other worker trains meanwhile, so there is no reason to wait for the task's end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from elasticdl.job import JobArgs
from elasticdl.master.coordinator import WAIT_SECONDS, Coordinator
from elasticdl.master.executor import Actor, Checkpoints
from elasticdl.master.resume import Job, resumed
from elasticdl.master.service import task_message
from elasticdl.master.store import MemoryStore
from elasticdl.master.tasks.decide import Action, decide
from elasticdl.master.tasks.state import JobState
from elasticdl.master.tasks.task_queue import Owner
from elasticdl.master.tasks.transitions import Outcome
from elasticdl.ps import checkpoint
from elasticdl.ps.model.part import Part
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.ending import Stopped

log = logging.getLogger(__name__)

ME = Owner("local", "local")


class Here(Coordinator):
    """A coordinator that never makes the actor wait: with one worker nothing happens meanwhile."""

    def __init__(self, part: Part, job: Job, store: MemoryStore) -> None:
        """Begin a job; `part` keeps the snapshots, in place of the parameter servers."""
        state, plans = resumed(store.take_over(), job)
        super().__init__(job.setup, plans, store, state)
        self._part = part

    def next_action(self) -> Action:
        """Return what the master has to do; END if that is nothing now."""
        action, evaluation = decide(self.state, self.rules), self.state.evaluation
        if evaluation is not None and action is Action.TAKE_SNAPSHOT:
            self._part.take_snapshot(evaluation.snapshot)
        if evaluation is not None and action is Action.CONCLUDE:
            self._part.drop_snapshot(evaluation.snapshot)
        return Action.END if action is Action.WAIT else action


class LocalTasks:
    """`Tasks` of one worker in the same process."""

    def __init__(self, args: JobArgs, job: Job, part: Part, do: Callable[[pb.Task], None]) -> None:
        """Begin a job; `do` waits, or does a task and reports it, in the middle of another one."""
        self._args, self._part, self._do = args, part, do
        self._held: list[int] = []
        store = MemoryStore()
        self._coordinator = Here(part, job, store)
        self._actor = Actor(self._coordinator, store, None, job.setup.scores, Checkpoints("", 0, ""))
        self._coordinator.attend(ME, [], self)
        self._coordinator.reached(part.view().version)

    @property
    def state(self) -> JobState:
        """Return the state of the job."""
        return self._coordinator.state

    def task(self) -> pb.Task:
        """See `Tasks`."""
        self._actor.run()
        assignment = self._coordinator.hand_out(ME, self._held)
        if assignment.task:
            self._held.append(assignment.task)
        return task_message(assignment, self._args.mode)

    def report(self, report: pb.TaskReport) -> bool:
        """See `Tasks`."""
        self._held.remove(report.task)
        outcome = Outcome(
            task=report.task,
            owner=ME,
            records=report.records,
            error=report.error,
            given_back=report.given_back,
        )
        return self._coordinator.report(outcome, dict(report.metric_states))

    def advanced(self, version: int) -> None:
        """Take in that the model has a new version: write a checkpoint and evaluate it, if that is due.

        Raises:
            Stopped: the job has failed.
        """
        if self._args.checkpoint_steps and version % self._args.checkpoint_steps == 0:
            self._save(version)
        self._coordinator.reached(version)
        self._actor.run()
        while self.state.evaluation and not self.state.ended:
            task = self.task()
            if task.id and task.type != pb.EVALUATION:  # the evaluation's next task pauses: training waits with it
                self.report(pb.TaskReport(task=task.id, given_back=True))
                task = pb.Task(type=pb.WAIT, wait_seconds=WAIT_SECONDS)
            self._do(task)
            self._actor.run()
        if self.state.ended:
            raise Stopped

    def _save(self, version: int) -> None:
        """Write a checkpoint, as one parameter server does."""
        directory, run = self._args.checkpoint_dir, self._args.run
        checkpoint.check_unused(directory, run)
        with self._part.frozen() as frozen:
            saved = checkpoint.save_part(directory, version, (0, 1), self._part, frozen)
        checkpoint.commit(directory, version, [saved], run=run)
        checkpoint.prune(directory, self._args.keep_checkpoint_max, run)
        log.info("Checkpoint of version %d is in %s", version, directory)
