"""What the job tells the script's process, by environment variables that `elasticdl train --job_command` sets."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.errors import InputError
from elasticdl.job import JobArgs
from tidewater.contract import env

MASTER_ADDR, JOB_ARGS = "ELASTICDL_MASTER_ADDR", "ELASTICDL_JOB_ARGS"


@dataclass(frozen=True)
class Environment:
    """The job, as the script's process knows it."""

    master: str
    """`host:port`."""
    args: JobArgs
    worker: str
    """Name of the pod."""


def read(environ: Mapping[str, str] = os.environ) -> Environment:
    """Return what the environment says; raise InputError that names a variable that is missing."""
    for name in (MASTER_ADDR, JOB_ARGS):
        if not environ.get(name):
            raise InputError(
                f"{name} is not set", 'Run the script with `elasticdl train --job_command "python3 script.py" …`.'
            )
    if not environ.get(env.ETCD):
        raise InputError(
            f"{env.ETCD} is not set: the workers find each other in etcd",
            "Submit the job with --distribution_strategy=AllreduceStrategy.",
        )
    args = JobArgs.from_json(environ[JOB_ARGS])
    return Environment(environ[MASTER_ADDR], args, environ.get(env.WORKER) or socket.gethostname())
