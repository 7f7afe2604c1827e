"""The process of a worker.

    python -m elasticdl.worker --job mnist --name elasticdl-mnist-worker-0 --master_addr elasticdl-mnist-master:50001 \
      --ps_addrs elasticdl-mnist-ps-0:2222,elasticdl-mnist-ps-1:2222 --job_args '{"job_name": "mnist", …}'

Exit codes are those of `tidewater.contract.exit_codes`: 0 when the job has succeeded, 1 when it has failed or a
peer stays away, 2 for wrong input, 143 after SIGTERM, when the worker has given its task back.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from elasticdl.errors import ElasticDLError, InputError, in_one_line
from elasticdl.job import JobArgs, Strategy, log_to
from elasticdl.ps.client import PsClient
from elasticdl.worker import assembly
from elasticdl.worker.ending import Ending, Leaving
from elasticdl.worker.loop import Parts, Worker
from elasticdl.worker.master import Identity, Master
from elasticdl.worker.remote import Remote
from elasticdl.worker.step import Step
from elasticdl.worker.trial import try_metrics
from tidewater.contract import exit_codes, leaving

log = logging.getLogger(__name__)

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""Of the container: microseconds of CPU time and the period in which they may be used.
https://docs.kernel.org/admin-guide/cgroup-v2.html"""


def main(argv: Sequence[str]) -> int:
    """Run a worker until the job is over; return the exit code."""
    given = parser().parse_args(argv)
    log_to(sys.stdout)
    try:
        job = JobArgs.from_json(given.job_args).checked()
        log_to(sys.stdout, job.log_level)
        return run(job, given)
    except Leaving:
        log.info("This worker leaves after SIGTERM; it has given its task back")
        return exit_codes.LEFT
    except ElasticDLError as error:
        log.error("%s", in_one_line(error))
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(prog="python -m elasticdl.worker", description="A worker of an elasticdl job.")
    made.add_argument("--job", required=True, help="name of the job")
    made.add_argument("--name", default=socket.gethostname(), help="name of this worker's pod (default: the host's)")
    made.add_argument("--master_addr", required=True, help="host:port of the master")
    made.add_argument("--ps_addrs", default="", help="host:port of each parameter server, by index, with commas")
    made.add_argument("--job_args", required=True, help="the job's flags as JSON, see elasticdl.job")
    return made


def run(job: JobArgs, given: argparse.Namespace) -> int:
    """Do the job's tasks until it is over."""
    servers = [address for address in given.ps_addrs.split(",") if address]
    check(job, servers)
    spec = assembly.spec_of(job)
    torch.set_num_threads(threads(os.environ, CPU_LIMIT))
    ending = Ending()
    signal.signal(signal.SIGTERM, lambda *_: _leave(ending))
    try_metrics(job, spec)
    step = Step(spec, assembly.model_of(spec, job.seed), assembly.device())
    identity = Identity(given.name, secrets.token_hex(8))
    patience = job.relaunch_timeout_worker
    with (
        PsClient(
            servers, worker=identity.worker, process=identity.process, patience_seconds=patience, say=log.info
        ) as client,
        Master(given.master_addr, identity, ending, log.info, patience) as master,
    ):
        parameters = Remote(client, step.model, job.get_model_steps)
        parts = Parts(
            tasks=master,
            parameters=parameters,
            step=step,
            last_step=assembly.last_step(job, spec),
            reader=assembly.readers_of(job, spec),
            outputs=assembly.outputs_of(job, spec, identity.worker),
            ending=ending,
            say=log.info,
        )
        try:
            parameters.prepare(spec.optimizer)
            reason = Worker(job, spec, parts).run()
        except Leaving:
            master.leave()
            raise
    if reason:
        log.error("The job has failed: %s", in_one_line(reason))
    return exit_codes.FAILED if reason else exit_codes.FINISHED


def _leave(ending: Ending) -> None:
    """Leave between two minibatches, or like a lost worker if that takes too long: the master notices both."""
    ending.leave()
    signal.signal(signal.SIGALRM, lambda *_: os._exit(exit_codes.LEFT))
    signal.setitimer(signal.ITIMER_REAL, leaving.STEP_SECONDS)


def check(job: JobArgs, servers: Sequence[str]) -> None:
    """Raise InputError if this worker can't do a job of this kind, or has not as many servers as the job."""
    if job.distribution_strategy is not Strategy.PARAMETER_SERVER:
        raise InputError(
            f"--distribution_strategy is {job.distribution_strategy}, and this is a worker with parameter servers",
            f"Use {Strategy.PARAMETER_SERVER}; the other strategies have no elasticdl.worker.",
        )
    if not servers:
        raise InputError(
            f"--ps_addrs is empty, and {Strategy.PARAMETER_SERVER} keeps the model on parameter servers",
            "Give their addresses with --ps_addrs, or train with --distribution_strategy=Local.",
        )
    if len(servers) != job.num_ps_pods:
        raise InputError(
            f"--ps_addrs has {len(servers)} addresses, and --num_ps_pods is {job.num_ps_pods}", "Give one for each."
        )


def threads(environment: os._Environ[str] | dict[str, str], limit: Path) -> int:
    """Return the number of threads for computing: OMP_NUM_THREADS, or the CPUs that the container may use."""
    if environment.get("OMP_NUM_THREADS", "").isdigit():
        return max(1, int(environment["OMP_NUM_THREADS"]))
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = limit.read_text().split()
        return max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no limit, or no control group
        return allowed
