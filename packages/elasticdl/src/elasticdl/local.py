"""A whole job in one process: `--distribution_strategy=Local`.

    run(JobArgs(job_name="mnist", distribution_strategy=Strategy.LOCAL, ...))     # an exit code

It has the zoo, the loop, the tasks and the optimizers of a job with parameter servers, but no network. The same
optimizers change the same numbers in the same order as with one server and one worker, so other jobs are compared with
this one. No other process takes over when it dies.

Evaluations are of exactly the version at which they fall due. Each is done at once, in the middle of a training task:
no other worker trains meanwhile, so there is no reason to wait for the task's end.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from elasticdl import layers
from elasticdl.errors import ElasticDLError
from elasticdl.job import JobArgs, JobMode, log_to
from elasticdl.master.coordinator import WAIT_SECONDS, Coordinator
from elasticdl.master.executor import Actor, Checkpoints
from elasticdl.master.progress_log import tell_end
from elasticdl.master.resume import Job, prepared, resumed
from elasticdl.master.service import task_message
from elasticdl.master.store import MemoryStore
from elasticdl.master.tasks.decide import Action, decide
from elasticdl.master.tasks.state import JobState
from elasticdl.master.tasks.task_queue import Owner
from elasticdl.master.tasks.transitions import Outcome
from elasticdl.ps import checkpoint
from elasticdl.ps.checkpoint import Model, TableRows
from elasticdl.ps.model.deduplication import Minibatch
from elasticdl.ps.model.gradients import Gradient
from elasticdl.ps.model.part import Contents, Part
from elasticdl.ps.model.policy import Policy
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.tensors import decode
from elasticdl.worker import assembly
from elasticdl.worker.ending import Ending, Leaving, Stopped
from elasticdl.worker.loop import Parts, Worker
from elasticdl.worker.parameters import Gradients
from elasticdl.worker.step import Step, buffers
from elasticdl.worker.trial import try_metrics
from elasticdl.zoo.optimizers import Optimizer
from tidewater.contract import exit_codes

log = logging.getLogger(__name__)

ME = Owner("local", "local")


def run(args: JobArgs) -> int:
    """Do a job in this process; return the exit code, as `tidewater.contract.exit_codes` has them.

    Errors are logged: wrong input gives USAGE, a failed job FAILED, SIGTERM LEFT. Nothing continues such a job, so that
    each start is a run of its own.
    """
    args = replace(args, run_id=secrets.token_hex(4))
    ending = Ending()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: ending.leave())
    try:
        failed = work(args.checked(), ending)
    except Leaving:
        log.info("This job ends after SIGTERM; nothing continues it")
        return exit_codes.LEFT
    except ElasticDLError as error:
        log.error("%s", error)
        return error.exit_code
    return exit_codes.FAILED if failed else exit_codes.FINISHED


def work(args: JobArgs, ending: Ending) -> bool:
    """Do a job, and log how it has ended; return whether it has failed.

    Raises:
        InputError: a flag, the zoo or the data is wrong.
        Leaving: `ending` says so.
    """
    job, spec = prepared(args, servers=0), assembly.spec_of(args)
    if args.checkpoint_steps:
        checkpoint.check_unused(args.checkpoint_dir, args.run)
    try_metrics(args, spec)
    step = Step(spec, assembly.model_of(spec, args.seed), assembly.device())
    part = Part(_begun(args, held(step.model, spec.optimizer)), Policy())

    def do(task: pb.Task) -> None:
        if task.type == pb.WAIT:
            ending.wait(task.wait_seconds)
        else:
            worker.do(task)  # the worker is made below, since it gets its tasks from `tasks`

    tasks = LocalTasks(args, job, part, do)
    parts = Parts(
        tasks=tasks,
        parameters=LocalParameters(step.model, part, tasks.advanced),
        step=step,
        last_step=assembly.last_step(args, spec),
        reader=assembly.readers_of(args, spec),
        outputs=assembly.outputs_of(args, spec, "local-0"),
        ending=ending,
        say=log.info,
    )
    worker = Worker(args, spec, parts)
    reason = worker.run()
    tell_end(tasks.state)
    if args.mode is JobMode.PREDICT and spec.prediction_outputs_processor is None and not reason:
        log.info("The predictions are in %s", args.output)
    return bool(reason)


def _begun(args: JobArgs, fresh: Contents) -> Contents:
    """Return what the model begins with: the values of a checkpoint or an exported model, if one is named."""
    if not args.checkpoint_dir_for_init:
        return fresh
    found = checkpoint.needed(args.checkpoint_dir_for_init, say=log.info)
    log.info("The values are those of %s", found.address)
    version = 0 if args.mode is JobMode.TRAIN else found.version
    return checkpoint.load_values(found, (0, 1), replace(fresh, version=version))


class LocalParameters:
    """The model, in this process."""

    def __init__(self, model: torch.nn.Module, part: Part, advanced: Callable[[int], None]) -> None:
        """Hold a model.

        Args:
            model: into which values are pulled.
            part: what holds them.
            advanced: is called with each new version.
        """
        self.part = part
        self._advanced = advanced
        saved = buffers(model)
        kept = {name: buffer for name, buffer in model.named_buffers() if name in saved}
        self._targets = {**dict(model.named_parameters()), **kept}
        self._rows = Rows(part)
        layers.attach(model, self._rows)

    def pull(self) -> int:
        """See `Parameters`."""
        return self._load(0)

    def push(self, minibatch: int, gradients: Gradients, learning_rate: float) -> bool:
        """See `Parameters`. There is no other worker, so no gradient is too old."""
        before = self.part.view().version
        rows = {each.name: (each.ids.cpu(), each.rows.cpu()) for each in gradients.rows}
        number = Minibatch("local", "local", minibatch)
        gradient = Gradient(number, before, gradients.dense, rows, gradients.buffers, learning_rate)
        accepted, version = self.part.push(gradient)
        if version > before:
            self._advanced(version)
        return accepted

    @contextlib.contextmanager
    def snapshot(self, version: int) -> Iterator[None]:
        """See `Parameters`."""
        self._load(version)
        try:
            yield
        finally:
            self._rows.snapshot = 0

    def idle(self) -> None:
        """See `Parameters`. Nothing can be lost here."""

    def whole(self) -> Model:
        """See `Parameters`."""
        view = self.part.view()
        tables = {}
        with self.part.frozen() as frozen:
            for name, store in self.part.stores.items():
                rows = frozen.view.rows[name]
                values = store.slice(rows, 0, rows.count)[:, : store.table.dim]
                tables[name] = TableRows.ordered(store.table, store.ids(rows), values)
        return Model(view.version, {name: decode(value) for name, value in view.dense.items()}, tables)

    def _load(self, snapshot: int) -> int:
        view = self.part.view(snapshot)
        self._rows.snapshot = snapshot
        with torch.no_grad():
            for name, value in view.dense.items():
                self._targets[name].copy_(decode(value))
        return view.version


class Rows:
    """The rows of the tables: an `EmbeddingSource` of the module's layers."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.snapshot = 0
        """The snapshot that rows are read from; 0: the current values."""

    def pull(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        """See `EmbeddingSource`."""
        return self._part.rows(name, ids, self._part.view(self.snapshot))


def held(model: torch.nn.Module, optimizer: Optimizer) -> Contents:
    """Return a model's present values as a parameter server begins with them."""
    dense = {name: value.detach().cpu().clone() for name, value in model.named_parameters()}
    kept = {name: value.clone() for name, value in buffers(model).items()}
    return Contents(dense, layers.tables(model), optimizer, kept)


class LocalCoordinator(Coordinator):
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
        self._coordinator = LocalCoordinator(part, job, store)
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


if __name__ == "__main__":  # for the benchmark, which measures a process
    ARGS = JobArgs.from_json(sys.argv[1])
    log_to(sys.stdout, ARGS.log_level)
    sys.exit(run(ARGS))
