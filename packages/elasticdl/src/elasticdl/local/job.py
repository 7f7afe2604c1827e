"""From the flags of a job with `--distribution_strategy=Local` to its exit code."""

from __future__ import annotations

import logging
import secrets
import signal
import threading
from dataclasses import replace

from elasticdl.errors import ElasticDLError
from elasticdl.job import JobArgs, JobMode
from elasticdl.local.parameters import Here, held, opened
from elasticdl.local.tasks import LocalTasks
from elasticdl.master.progress_log import tell_end
from elasticdl.master.resume import prepared
from elasticdl.ps import checkpoint
from elasticdl.ps.model.part import Contents
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker import assembly
from elasticdl.worker.ending import Ending, Leaving
from elasticdl.worker.loop import Parts, Worker
from elasticdl.worker.step import Step
from elasticdl.worker.trial import try_metrics
from tidewater.contract import exit_codes

log = logging.getLogger(__name__)


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
    part = opened(_begun(args, held(step.model, spec.optimizer)))

    def do(task: pb.Task) -> None:
        if task.type == pb.WAIT:
            ending.wait(task.wait_seconds)
        else:
            worker.do(task)  # the worker is made below, since it gets its tasks from `tasks`

    tasks = LocalTasks(args, job, part, do)
    parts = Parts(
        tasks=tasks,
        parameters=Here(step.model, part, tasks.advanced),
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
