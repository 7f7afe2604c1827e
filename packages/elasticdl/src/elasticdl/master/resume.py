"""From the flags of a job to its plans, its rules and its state: a new one, or that of a master that was killed.

    job = prepared(args, servers=2)                 # reads the index of the data; InputError before anything is made
    state = resumed(store.take_over(), job)

What is read is checked against the record: a master that comes back to other data must not go on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Shard
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, JobMode, Strategy
from elasticdl.master.coordinator import Plans, Setup
from elasticdl.master.scores import Scores
from elasticdl.master.tasks.plan import EVALUATIONS, Cut, Plan, not_empty
from elasticdl.master.tasks.state import JobState, Rules, Script, begin
from elasticdl.worker.assembly import last_step, reader_of, spec_of
from elasticdl.zoo.spec import ModelSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What follows from the flags, the model zoo and the data."""

    setup: Setup
    plans: Plans


def prepared(args: JobArgs, servers: int) -> Job:
    """Return the plans and rules of a job.

    Raises:
        InputError: a flag is wrong, a function is missing in the zoo, or there is no data.
    """
    args.checked()
    spec = None if args.job_command else spec_of(args)
    work = _work(args, spec)
    evaluation = _evaluation(args, spec)
    uses_servers = args.distribution_strategy is Strategy.PARAMETER_SERVER and spec is not None
    if uses_servers and servers != args.num_ps_pods:
        raise InputError(
            f"--ps_addrs has {servers} addresses, and --num_ps_pods is {args.num_ps_pods}", "Give one for each server."
        )
    rules = Rules(
        trains=args.mode is JobMode.TRAIN,
        servers=servers if uses_servers else 0,
        evaluation_steps=args.evaluation_steps,
        evaluation_tasks=len(evaluation.pieces) if evaluation else 0,
        checkpoint_steps=args.checkpoint_steps if uses_servers and args.mode is JobMode.TRAIN else 0,
        max_step=_last_update(args, spec),
        exports=args.mode is JobMode.TRAIN and bool(args.output) and spec is not None,
        retries=args.max_task_retries,
        goes_on_without=args.task_fault_tolerance,
    )
    scores = Scores(spec.eval_metrics) if spec and evaluation else None
    setup = Setup(rules, scores, (lambda script: by_script(args, script)) if work is None else None)
    return Job(setup, Plans(work, evaluation))


def _last_update(args: JobArgs, spec: ModelSpec | None) -> int | None:
    """Return after how many updates training ends; a model that isn't trained may have had as many before."""
    if args.mode is not JobMode.TRAIN:
        return None
    return args.max_step if spec is None else last_step(args, spec)


def by_script(args: JobArgs, script: Script) -> Plan:
    """Return the plan for data that a script finds by itself: records by number, of a shard without a name."""
    cut = Cut(
        records_per_task=script.minibatch_size * script.minibatches_per_task,
        epochs=script.epochs,
        seed=args.seed,
        shuffle_records=script.shuffle_records,
    )
    return Plan.of([Shard("", 0, script.records)], cut)


def resumed(fields: Mapping[str, Any] | None, job: Job) -> tuple[JobState, Plans]:
    """Return the state that another master has saved, or a new one, and the plans that go with it.

    Raises:
        InputError: the data is not the one for which the state was saved.
    """
    digest = _digest(job.plans)
    if fields is None:
        tasks = job.plans.work.tasks if job.plans.work else range(1, 1)
        return begin(job.setup.rules, tasks, plan=digest if job.plans.work else ""), job.plans
    state, plans = JobState.from_fields(fields, now=time.monotonic()), job.plans
    if state.script is not None and job.setup.by_script is not None:
        plans = dataclasses.replace(plans, work=job.setup.by_script(state.script))
        digest = plans.work.digest() if plans.work else ""
    if state.plan not in (digest, ""):
        raise InputError(
            "the data or its flags have changed since this job was begun",
            "Put the data back as it was, or submit the job again: it then starts from the beginning.",
        )
    log.info("Going on where another master ended: %d tasks are done", state.work.done)
    return state, plans


def _work(args: JobArgs, spec: ModelSpec | None) -> Plan | None:
    """Return the plan of training or prediction; None if a script is to say how many records there are."""
    if args.mode is JobMode.EVALUATE:
        return Plan((), Cut(args.records_per_task()))
    address = args.data()
    if spec is None and not address:
        return None
    flag = "--training_data" if args.mode is JobMode.TRAIN else "--prediction_data"
    trains = args.mode is JobMode.TRAIN
    cut = Cut(
        records_per_task=args.records_per_task(),
        epochs=args.num_epochs if trains else 1,
        seed=args.seed,
        shuffle=trains,
    )
    return not_empty(Plan.of(_shards(args, spec, address), cut), flag, address)


def _evaluation(args: JobArgs, spec: ModelSpec | None) -> Plan | None:
    """Return the plan of each evaluation; None if nothing is evaluated."""
    if spec is None or not args.validation_data or args.mode is JobMode.PREDICT:
        return None
    cut = Cut(records_per_task=args.records_per_task(), shuffle=False, first=EVALUATIONS)
    plan = Plan.of(_shards(args, spec, args.validation_data), cut)
    return not_empty(plan, "--validation_data", args.validation_data)


def _shards(args: JobArgs, spec: ModelSpec | None, address: str) -> list[Shard]:
    opened = open_reader(address, args.data_reader_params) if spec is None else reader_of(args, spec, address)
    with opened as reader:
        return reader.shards()


def _digest(plans: Plans) -> str:
    both = [plan.digest() if plan else "" for plan in (plans.work, plans.evaluation)]
    return hashlib.sha256("/".join(both).encode()).hexdigest()[:32]
