"""Opens the session of a script's worker: the runtime's, with the job's flags as its command line.

with open_script(read(os.environ), Learner(model, optimizer)) as session: ...

The flags come by environment variables that `elasticdl train --job_command` sets.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files

from elasticdl.allreduce.settings import NEVER, PATIENCE_SECONDS, job_id
from elasticdl.errors import InputError
from elasticdl.job import JobArgs
from tidewater import Config
from tidewater.contract import env
from tidewater.elastic.method.norms import refuse_synchronised
from tidewater.elastic.method.optimizers import several
from tidewater.elastic.method.parallel import refuse_parallel
from tidewater.elastic.session.assembly import Content, open_session
from tidewater.elastic.session.session import Session
from tidewater.elastic.training import Learner

MASTER_ADDR, JOB_ARGS = "ELASTICDL_MASTER_ADDR", "ELASTICDL_JOB_ARGS"


@dataclass(frozen=True)
class Environment:
    """The job, as the script's process knows it."""

    master: str
    """`host:port`."""
    args: JobArgs
    worker: str
    """Name of the pod."""


def read(environ: Mapping[str, str]) -> Environment:
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


@contextmanager
def open_script(environment: Environment, learner: Learner) -> Iterator[Session]:
    """Give the session of this worker, which has not met the others yet. Raise like ``open_session``.

    Raise ConfigError, too, if the model or the optimizer would wait for a lost worker.
    """
    refuse_parallel(learner.model, several(learner.optimizer))
    refuse_synchronised(learner.model)
    with tempfile.TemporaryDirectory(prefix="elasticdl-") as scratch:
        config = Config.parse(flags_of(environment.args, environment.worker, scratch), os.environ)
        content = Content(
            training=learner,
            device=next(learner.model.parameters()).device,
            data="shards",
            alike={"optimizer": type(learner.optimizer).__name__, "kept": ", ".join(sorted(learner.stateful))},
            code=(files("elasticdl"),),
        )
        with open_session(config, lambda _: content) as opened:
            opened.join()
            yield opened.session


def flags_of(args: JobArgs, worker: str, scratch: str) -> list[str]:
    """Return the runtime's command line for a script of this job."""
    checkpoints = f"{args.checkpoint_dir.rstrip('/')}/{job_id(args)}" if args.checkpoint_dir else scratch
    values: dict[str, object] = {
        "--job": job_id(args),
        "--worker": worker,
        "--seed": args.seed,
        "--checkpoints": checkpoints,
        "--checkpoint-minutes": 0,
        "--checkpoint-every": args.checkpoint_steps,
        "--keep-checkpoints": args.keep_checkpoint_max or NEVER,
        "--report-every": NEVER,
        "--compare-every": 0,
        "--group-timeout-seconds": PATIENCE_SECONDS,
    }
    return [word for flag, value in values.items() for word in (flag, str(value))]
