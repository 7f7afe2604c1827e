"""What a worker does: take a task, do it, report it, until the master says that the job is over.

    Worker(job, spec, parts).run()       # returns why the job has failed: "" if it has succeeded

The loop is the same for a job with parameter servers and for one in a single process (`elasticdl.local`): they differ
in where tasks come from (`Tasks`) and where the model is (`Parameters`).

A task is counted once, by the master. What a task has already pushed when its worker dies stays in the model, and the
task is done again as a whole by another worker.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from elasticdl.data.reader import Reader, Shard, exactly
from elasticdl.errors import ElasticDLError, InputError, Unavailable
from elasticdl.job import JobArgs
from elasticdl.ps.errors import SnapshotLost
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker import exported
from elasticdl.worker.batches import Ahead, Minibatch, minibatches
from elasticdl.worker.ending import Ended, Ending, Leaving, Stopped
from elasticdl.worker.exported import Origin
from elasticdl.worker.master import Tasks
from elasticdl.worker.parameters import Parameters
from elasticdl.worker.predictions import Outputs
from elasticdl.worker.step import Step, buffers
from elasticdl.zoo.callbacks import learning_rate
from elasticdl.zoo.spec import Mode, ModelSpec

MODES = {pb.TRAINING: Mode.TRAINING, pb.EVALUATION: Mode.EVALUATION, pb.PREDICTION: Mode.PREDICTION}

OF_A_TASK = (InputError, Unavailable, SnapshotLost)
"""Errors that are reported to the master: the task may be done later or by another worker. Others end this process."""


@dataclass(frozen=True)
class Parts:
    """What a worker works with."""

    tasks: Tasks
    parameters: Parameters
    step: Step
    last_step: int | None
    """Number of updates after which training ends."""
    reader: Callable[[pb.TaskType], Reader]
    """Returns the reader of the data of a type of task."""
    outputs: Outputs
    ending: Ending
    say: Callable[[str], None]
    """Writes a line of the log."""


class Worker:
    """One worker of a job."""

    def __init__(self, job: JobArgs, spec: ModelSpec, parts: Parts) -> None:
        self._job, self._spec, self._parts = job, spec, parts
        self._minibatch = 0
        self._losses = Losses(job.log_loss_steps, parts.say)
        self._explained: set[str] = set()
        """Errors that are in the log with their traceback."""
        self._handlers: dict[pb.TaskType, Callable[[pb.Task, pb.TaskReport], None]] = {
            pb.TRAINING: self._train,
            pb.EVALUATION: self._evaluate,
            pb.PREDICTION: self._predict,
            pb.EXPORT: self._export,
        }

    def run(self) -> str:
        """Work until the job is over; return why it has failed, or nothing if it has succeeded.

        Raises:
            Leaving: the process got SIGTERM; its task was given back.
            ElasticDLError: the master or a parameter server stays away.
        """
        try:
            return self._until_stopped()
        finally:
            self._losses.tell()

    def _until_stopped(self) -> str:
        while True:
            task = self._parts.tasks.task()
            if task.type == pb.STOP:
                return task.reason
            if task.type == pb.REPLACE:
                raise ElasticDLError(task.reason, "See the errors above; another pod takes its place.")
            with contextlib.suppress(Stopped):  # the next answer of the master says why
                if task.type == pb.WAIT:
                    self._parts.parameters.idle()
                    self._parts.ending.wait(task.wait_seconds)
                else:
                    self.do(task)

    def do(self, task: pb.Task) -> None:
        """Do a task and report how it has ended."""
        report = pb.TaskReport(task=task.id)
        try:
            self._handlers[task.type](task, report)
        except Leaving:
            self._parts.tasks.report(pb.TaskReport(task=task.id, given_back=True))
            raise
        except Ended:
            raise
        except Exception as error:  # whatever a user's function raises is the task's error
            if isinstance(error, ElasticDLError) and not isinstance(error, OF_A_TASK):
                raise
            report.error = told(error)
            self._parts.say(f"task {task.id} of {task.shard} has failed: {self._explanation(error)}")
        self._parts.tasks.report(report)

    def _explanation(self, error: Exception) -> str:
        """Return an error, with its traceback if that says more and isn't in the log: a task is tried several times."""
        text = told(error)
        if isinstance(error, ElasticDLError) or text in self._explained:
            return text
        self._explained.add(text)
        return f"{text}\n{''.join(traceback.format_exception(error))}"

    @contextlib.contextmanager
    def _batches(self, task: pb.Task) -> Iterator[Iterator[Minibatch]]:
        """Give the minibatches of a task, which are read ahead until the end of the block."""
        reader, mode = self._parts.reader(task.type), MODES[task.type]
        taken = exactly(reader, Shard(task.shard, task.start, task.end))
        made = minibatches(
            taken, self._job.minibatch_size, lambda chosen: self._spec.feed(chosen, mode, reader.metadata)
        )
        with Ahead(made) as batches:
            yield self._unless_ended(batches)

    def _unless_ended(self, batches: Iterable[Minibatch]) -> Iterator[Minibatch]:
        """Yield minibatches; raise Leaving or Stopped between two of them."""
        for batch in batches:
            self._parts.ending.check()
            yield batch

    def _train(self, task: pb.Task, report: pb.TaskReport) -> None:
        with self._batches(task) as batches:
            for batch in batches:
                self._minibatch += 1
                if not self._train_on(batch):
                    return
                report.records += batch.records

    def _train_on(self, batch: Minibatch) -> bool:
        """Push the gradients of a minibatch, computed anew for as long as they are too old.

        Return False, without pushing, if the model has had its last update: the master ends the training.
        """
        parameters, accepted = self._parts.parameters, False
        while not accepted:
            version = parameters.pull()
            if self._parts.last_step is not None and version >= self._parts.last_step:
                return False
            loss, gradients = self._parts.step.gradients(batch.batch)
            rate = learning_rate(self._spec.callbacks, version, self._spec.optimizer.lr)
            accepted = parameters.push(self._minibatch, gradients, rate)
            self._parts.ending.check()
        self._losses.add(loss, version)
        return True

    def _evaluate(self, task: pb.Task, report: pb.TaskReport) -> None:
        metrics = self._spec.eval_metrics()
        with self._parts.parameters.snapshot(task.model_version), self._batches(task) as batches:
            for batch in batches:
                metrics.update(batch.batch.labels, self._parts.step.predictions(batch.batch))
                report.records += batch.records
        report.metric_states["all"] = metrics.to_json().encode()

    def _predict(self, task: pb.Task, report: pb.TaskReport) -> None:
        outputs = self._parts.outputs
        outputs.begin(Shard(task.shard, task.start, task.end))
        with self._parts.parameters.snapshot(task.model_version), self._batches(task) as batches:
            for batch in batches:
                outputs.add(self._parts.step.predictions(batch.batch))
                report.records += batch.records
        outputs.commit()

    def _export(self, task: pb.Task, report: pb.TaskReport) -> None:
        model = self._parts.parameters.whole()
        origin = Origin(self._job.model_def, self._job.model_params)
        kept = buffers(self._parts.step.model)
        exported.write(model, origin, buffers=kept, address=self._job.output)
        self._parts.say(f"The model of version {model.version} is in {self._job.output}")


class Losses:
    """Writes the mean loss of the worker's minibatches: of the first one, of every so many after it, of the rest."""

    def __init__(self, every: int, say: Callable[[str], None]) -> None:
        self._every, self._say = every, say
        self._due = 1
        self._sum, self._count, self._version = 0.0, 0, 0

    def add(self, loss: float, version: int) -> None:
        """Take the loss of a minibatch that was computed with a version of the model."""
        self._sum, self._count, self._version = self._sum + loss, self._count + 1, version
        if self._count >= self._due:
            self.tell()

    def tell(self) -> None:
        """Write the mean loss of the minibatches since the last line, if there are any."""
        if self._every and self._count:
            self._say(f"Loss: {self._sum / self._count:.6g} step={self._version}")
        self._due, self._sum, self._count = self._every, 0.0, 0


def told(error: Exception) -> str:
    """Return an error as a person reads it: an error for users as it is, another one with its type."""
    return str(error) if isinstance(error, ElasticDLError) else f"{type(error).__name__}: {error}"
