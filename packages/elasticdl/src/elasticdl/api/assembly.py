"""Opens the session of a script's worker: the runtime's, with the job's flags as its command line.

with open_script(environment.read(), Learner(model, optimizer)) as session: ...
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

from elasticdl.allreduce.settings import NEVER, PATIENCE_SECONDS, job_id
from elasticdl.api.environment import Environment
from elasticdl.job import JobArgs
from tidewater import Config
from tidewater.elastic.session.assembly import Content, open_session
from tidewater.elastic.session.session import Session
from tidewater.elastic.training import Learner


@contextmanager
def open_script(environment: Environment, learner: Learner) -> Iterator[Session]:
    """Give the session of this worker, which has not met the others yet. Raise like ``open_session``."""
    with tempfile.TemporaryDirectory(prefix="elasticdl-") as scratch:
        config = Config.parse(flags_of(environment.args, environment.worker, scratch), os.environ)
        content = Content(
            training=learner,
            device=next(learner.model.parameters()).device,
            data="shards",
            alike={"optimizer": type(learner.optimizer).__name__, "kept": ", ".join(sorted(learner.stateful))},
            code=(files("elasticdl"),),
        )
        with open_session(config, lambda _: content) as session:
            yield session


def flags_of(args: JobArgs, worker: str, scratch: str) -> list[str]:
    """Return the runtime's command line for a script of this job."""
    checkpoints = f"{args.checkpoint_dir.rstrip('/')}/{job_id(args)}" if args.checkpoint_dir else scratch
    values: dict[str, object] = {
        "--job": job_id(args),
        "--worker": worker,
        "--seed": args.seed,
        "--checkpoints": checkpoints,
        "--checkpoint-every": args.checkpoint_steps or NEVER,
        "--keep-checkpoints": args.keep_checkpoint_max or NEVER,
        "--report-every": NEVER,
        "--compare-every": 0,
        "--group-timeout-seconds": PATIENCE_SECONDS,
    }
    return [word for flag, value in values.items() for word in (flag, str(value))]
