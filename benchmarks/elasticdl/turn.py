"""One turn: a job from the start of its processes to its end, or until a worker is replaced."""

from __future__ import annotations

import re
import secrets
import signal
import time
from datetime import datetime
from pathlib import Path

from elasticdl.job import JobArgs, Strategy

from benchmarks.elasticdl.jobs import Job
from benchmarks.elasticdl.plan import MEASURES, REPLACE
from benchmarks.elasticdl.rate import loss_times, rate
from benchmarks.elasticdl.systems import ALLREDUCE, LOCAL, NOTICED, PAUSE_SECONDS, REPLACED, SERVERS, System

MINIBATCH = 64
LINE_MINIBATCHES = 5
"""Of a worker, for each line with a loss; also of a task, twice."""
RECORDS = 12_800
"""Of the data."""
COMPUTING_EPOCHS, PACED_EPOCHS = 6, 2
STRATEGIES = {LOCAL: Strategy.LOCAL, ALLREDUCE: Strategy.ALLREDUCE}
_GONE = re.compile(r"^\[(\S+ \S+)\].* is gone; its tasks", re.MULTILINE)


def make(measure: str, system: System, data: Path, etcd: str, folder: Path) -> dict[str, float]:
    """Make a turn of a key of MEASURES; return its values by measure.

    Raises:
        TurnFailed: the job failed or took too long.
    """
    paced = measure != "computing"
    args = job_args(system, data, pause=PAUSE_SECONDS if paced else 0.0)
    with Job(system, args, etcd, folder) as job:
        job.start()
        if measure == REPLACE:
            return _replaced(job)
        job.wait(job.ended, "the end of the job")
        workers = system.workers if system.kind == ALLREDUCE else 1
        return {MEASURES[measure]: rate(job.loss_times(), LINE_MINIBATCHES * MINIBATCH * workers)}


def job_args(system: System, data: Path, *, pause: float) -> JobArgs:
    """Return the flags of a job. With more workers it has more epochs, so that all take about as long."""
    epochs = (PACED_EPOCHS if pause else COMPUTING_EPOCHS) * (system.workers if pause else 1)
    return JobArgs(
        job_name=f"bench-{secrets.token_hex(4)}",
        distribution_strategy=STRATEGIES.get(system.kind, Strategy.PARAMETER_SERVER),
        model_zoo=str(Path(__file__).parent / "zoo"),
        model_def="paced.custom_model",
        model_params=f"pause={pause}",
        training_data=str(data),
        minibatch_size=MINIBATCH,
        num_minibatches_per_task=2 * LINE_MINIBATCHES,
        num_epochs=epochs,
        log_loss_steps=LINE_MINIBATCHES,
        num_ps_pods=system.servers if system.kind == SERVERS else 0,
        num_workers=system.workers,
        use_async=not system.synchronous,
        grads_to_wait=system.workers if system.synchronous else 1,
        # A worker that is ahead by a version would otherwise compute every second gradient twice.
        sync_version_tolerance=1 if system.synchronous else 0,
    )


def _replaced(job: Job) -> dict[str, float]:
    """Kill a worker while all train, and start another one at once."""
    victim = job.workers[-1]
    job.wait(lambda: all(loss_times(worker.log.read_text()) for worker in job.workers), "a loss of every worker")
    killed = time.time()
    victim.signal(signal.SIGKILL)
    started = time.time()
    newcomer = job.start_worker()
    first = job.wait(lambda: loss_times(newcomer.log.read_text()), "a loss of the new worker")
    assert job.master is not None
    (gone,) = _GONE.findall(job.master.log.read_text())
    noticed = datetime.strptime(gone, "%Y-%m-%d %H:%M:%S,%f").timestamp()
    return {NOTICED: noticed - killed, REPLACED: first - started}
