"""The process of a worker of AllreduceStrategy.

    python3 -m elasticdl.allreduce --job mnist --name elasticdl-mnist-worker-0 --etcd http://etcd:2379 --job_args JSON

Further arguments are the trainer's, such as `--lease-seconds 5`; they take precedence. What the trainer finds in the
environment (`tidewater.contract.env`) is as for any of its jobs. Exit codes (`tidewater.contract.exit_codes`): 0 when
the job is finished, 2 for wrong input, 143 after SIGTERM.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from elasticdl.allreduce import assembly, settings
from elasticdl.allreduce.settings import Place
from elasticdl.errors import ElasticDLError
from elasticdl.job import JobArgs, log_to
from elasticdl.worker.assembly import last_step, spec_of
from elasticdl.worker.main import CPU_LIMIT, threads
from elasticdl.zoo.spec import ModelSpec
from tidewater import run
from tidewater.contract import env

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run a worker until the job is finished; return the exit code."""
    given, more = parser().parse_known_args(argv)
    log_to(sys.stdout)
    try:
        job = JobArgs.from_json(given.job_args).checked()
        log_to(sys.stdout, job.log_level)
        settings.check(job)
        spec = spec_of(job)
        with tempfile.TemporaryDirectory(prefix="elasticdl-") as scratch:
            flags = settings.trainer_flags(job, Place(given.etcd, given.name, Path(scratch)), last_step(job, spec))
            flags += ["--threads", str(threads(os.environ, CPU_LIMIT)), *more]
            return run(assembly.training(job, spec), flags, flags=lambda group: _digests(group, job, spec))
    except ElasticDLError as error:
        log.error("%s", error)
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(
        prog="python3 -m elasticdl.allreduce", description="A worker of an elasticdl job.", allow_abbrev=False
    )
    made.add_argument("--job", help="name of the job; the one in --job_args counts")
    made.add_argument("--name", default=os.environ.get(env.WORKER, socket.gethostname()), help="of this worker's pod")
    made.add_argument("--etcd", default="", help=f"client URLs of etcd, comma-separated (default: {env.ETCD})")
    made.add_argument("--job_args", required=True, help="the job's flags as JSON, see elasticdl.job")
    return made


def _digests(group: argparse._ArgumentGroup, job: JobArgs, spec: ModelSpec) -> None:
    """Add what must be equal in all workers: the trainer refuses a worker that has other values of such flags."""
    told = job.to_json().encode() + spec.file.read_bytes()
    group.add_argument("--job-digest", default=hashlib.sha256(told).hexdigest()[:16], help=argparse.SUPPRESS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
