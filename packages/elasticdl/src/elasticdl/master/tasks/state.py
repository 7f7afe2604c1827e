"""All that the master must not forget, as one frozen value, and its only way to JSON and back.

    state = begin(Rules(...), work=range(1, 76))
    JobState.from_fields(json.loads(json.dumps(state.to_fields()))) == state

What it holds is small: which tasks are done follows from a few numbers (see `task_queue`), and which records a task has
follows from the plan (see `plan`). Transitions are in `transitions`, what happens next is in `decide`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elasticdl.errors import ElasticDLError
from elasticdl.master.tasks.plan import EVALUATIONS, EXPORTS
from elasticdl.master.tasks.task_queue import Held, Owner, Queue

NO_VERSION = -1
"""Of what has not yet happened."""


class Stage(StrEnum):
    """How far the job is. The order is that of the job; stages that a job does not need are passed at once."""

    WORK = "work"
    """Training or prediction tasks are handed out."""
    FLUSH = "flush"
    """The parameter servers apply what waits for more gradients."""
    SAVE = "save"
    """The final checkpoint is written."""
    EXPORT = "export"
    """One worker writes the final model."""
    EVALUATE = "evaluate"
    """The final model is evaluated. It is stored before, so that no failure of an evaluation loses it."""
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the flags and the zoo say about the course of the job. It never changes."""

    trains: bool = True
    """Whether the tasks change the model."""
    servers: int = 0
    """Number of parameter servers."""
    evaluation_steps: int = 0
    evaluation_tasks: int = 0
    """Number of tasks of one evaluation; 0: nothing is evaluated."""
    checkpoint_steps: int = 0
    max_step: int | None = None
    exports: bool = False
    retries: int = 3
    goes_on_without: bool = False
    """Whether a task that has failed too often is left out, or the job fails."""


@dataclass(frozen=True)
class Script:
    """What a script of the user's own has said about the data that it finds by itself."""

    records: int
    epochs: int
    minibatch_size: int
    minibatches_per_task: int
    shuffle_records: bool


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, from its snapshot to its metrics."""

    number: int
    """Counts the evaluations of the job; one that is begun anew gets another number."""
    snapshot: int
    """The snapshot's number on servers and workers: the version, unless that number was used before."""
    queue: Queue
    ready: bool = False
    """Whether all servers have the snapshot."""
    step: int = 0
    """Version of server 0 in the snapshot."""
    servers: tuple[str, ...] = ()
    """Processes of the servers that have the snapshot: one that is restarted has lost it."""


@dataclass(frozen=True, kw_only=True)
class JobState:
    """All that the master must not forget."""

    work: Queue
    export: Queue
    stage: Stage = Stage.WORK
    reason: str = ""
    """Why the job has failed."""
    plan: str = ""
    """Digest of the plan that numbers the tasks; empty: no data is known yet."""
    script: Script | None = None
    records: int = 0
    """Records of the tasks of `work` that were counted."""
    version: int = 0
    """Newest version of the model on server 0, as far as it was reported."""
    stopped: str = ""
    """Why no more work is handed out, though some is to do: the last step is reached."""
    evaluation: Evaluation | None = None
    evaluations: int = 0
    """Number of evaluations that were begun."""
    snapshot: int = 0
    """Number of the last snapshot."""
    due: bool = False
    """Whether another evaluation is to begin as soon as there is none."""
    triggered: int = 0
    """Version at which an evaluation was due for the last time."""
    closing: bool = False
    """Whether the last evaluation has begun, of the final model."""
    evaluated: int = NO_VERSION
    """Version that was evaluated last."""
    unevaluated: str = ""
    """Why an evaluation has failed: no other one begins, and the job fails once the final model is stored."""
    saved: int = NO_VERSION
    """Version of the last checkpoint."""
    slowest: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Seconds of the slowest task that was done, by type."""
    seen: Mapping[int, int] = dataclasses.field(default_factory=dict)
    """Of a script: the update with which each of the last tasks was final."""
    seen_before: int = 0
    """The newest update of the tasks dropped from `seen`."""
    generation: int = 0
    """Of a script's workers: the newest one that has begun."""
    credited: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The last task that was counted for a process, so that the same report again gets the same answer."""

    @property
    def ended(self) -> bool:
        """Return whether nothing more happens."""
        return self.stage in (Stage.DONE, Stage.FAILED)

    def to_fields(self) -> dict[str, Any]:
        """Return the state as JSON can hold it. When a task was begun is not in it: clocks of two processes differ."""
        fields = dataclasses.asdict(dataclasses.replace(self, work=_NONE, export=_NONE, evaluation=None))
        fields["seen"] = sorted(self.seen.items())  # keys of JSON are texts
        fields["work"], fields["export"] = _queue_fields(self.work), _queue_fields(self.export)
        if self.evaluation:
            evaluation = dataclasses.asdict(dataclasses.replace(self.evaluation, queue=_NONE))
            fields["evaluation"] = {**evaluation, "queue": _queue_fields(self.evaluation.queue)}
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], *, now: float = 0.0) -> JobState:
        """Return the state of `to_fields`; tasks under way count as begun now.

        Raises:
            ElasticDLError: a field is missing, unknown or of another kind.
        """
        try:
            given = dict(fields)
            evaluation, script, seen = given.pop("evaluation"), given.pop("script"), dict(given.pop("seen"))
            work, export = _queue(given.pop("work"), now), _queue(given.pop("export"), now)
            if evaluation:
                queue, servers = _queue(evaluation["queue"], now), tuple(evaluation["servers"])
                evaluation = Evaluation(**{**evaluation, "queue": queue, "servers": servers})
            return cls(
                **{**given, "stage": Stage(given["stage"])},
                work=work,
                export=export,
                evaluation=evaluation,
                seen=seen,
                script=Script(**script) if script else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ElasticDLError(
                f"the master's record in etcd can't be read ({error!r})",
                "Submit the job again: it then starts from the beginning, or from --checkpoint_dir_for_init.",
            ) from error


def begin(rules: Rules, work: range, *, plan: str = "") -> JobState:
    """Return the state of a job before its first task."""
    return JobState(work=Queue.of(work), export=Queue.of(range(EXPORTS, EXPORTS + rules.exports)), plan=plan)


def evaluation_tasks(rules: Rules, number: int) -> range:
    """Return the numbers of the tasks of one evaluation."""
    start = EVALUATIONS + number * rules.evaluation_tasks
    return range(start, start + rules.evaluation_tasks)


_NONE = Queue(0, 0, 0)


def _queue_fields(queue: Queue) -> dict[str, Any]:
    doing = [[task, held.owner.worker, held.owner.process] for task, held in sorted(queue.doing.items())]
    return {
        "first": queue.first,
        "end": queue.end,
        "cursor": queue.cursor,
        "returned": list(queue.returned),
        "doing": doing,
        # Keys of JSON are texts.
        "failures": sorted(queue.failures.items()),
        "losses": sorted(queue.losses.items()),
        "left_out": sorted(queue.left_out.items()),
    }


def _queue(fields: Mapping[str, Any], now: float) -> Queue:
    return Queue(
        fields["first"],
        fields["end"],
        fields["cursor"],
        tuple(fields["returned"]),
        {task: Held(Owner(worker, process), now) for task, worker, process in fields["doing"]},
        failures={task: tuple(processes) for task, processes in fields["failures"]},
        losses=dict(fields["losses"]),
        left_out=dict(fields["left_out"]),
    )
