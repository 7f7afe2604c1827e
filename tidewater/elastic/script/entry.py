"""The beginning and the end of a worker: from the command line to its settings, and from an error to the exit code.

config = configured(argv, flags)        # in the launcher of several processes: Launched, after these have ended
with refusing_early_ends(): ...         # the script's code
code = exit_code(error)                 # prints the sentence
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from tidewater.contract import exit_codes
from tidewater.elastic.config import AddFlags, Config
from tidewater.elastic.errors import ConfigError, Diverged, Drifted, RecordError, TrainerError
from tidewater.elastic.launch import launcher, program
from tidewater.elastic.training import Stop

_STOP = (
    "to end training with a final checkpoint, raise tidewater.Stop(reason) in on_step or on_evaluation; to end with an "
    "error, raise another exception. The last checkpoint is kept"
)


class Launched(Exception):
    """This process was the launcher of several, which have ended with ``code``."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


def configured(argv: Sequence[str] | None, flags: AddFlags) -> Config:
    """Return the settings of this worker's process.

    With ``--processes`` above 1, this process is the launcher of the others: raise Launched when they have ended.
    Without ``argv``, a process without PYTHONHASHSEED executes its program again: see ``program.fix_hash_seed``.
    Raise ConfigError.
    """
    if argv is None:
        program.fix_hash_seed()
    config = Config.parse(sys.argv[1:] if argv is None else argv, os.environ, flags)
    if config.local_rank is None:
        planned = launcher.plan(config.processes, os.environ, config.shard, config.shard_nodes)
        if planned.processes > 1 or config.shard_nodes > 1:
            raise Launched(launcher.launch(config, planned))
    return launcher.share(config)


def exit_code(error: TrainerError) -> int:
    """Print what is wrong. Return a code of ``contract.exit_codes``."""
    print(f"trainer: {error}", file=sys.stderr)
    return exit_codes.USAGE if isinstance(error, ConfigError | RecordError | Diverged | Drifted) else exit_codes.FAILED


def end_without_model() -> NoReturn:
    """End a worker, of a library's trainer, that has not got the final model of the job: nothing is left to do."""
    print("trainer: the job has finished, and this worker has joined too late to have the model", flush=True)
    raise SystemExit(exit_codes.FINISHED)


@contextmanager
def refusing_early_ends(is_over: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Raise ConfigError if the script's code ends the process as if the job were finished, or raises Stop where it
    has no effect. ``is_over`` returns whether the job's training has ended for this worker."""
    try:
        yield
    except Stop as error:
        raise ConfigError(f"the script has raised tidewater.Stop({error}) elsewhere: {_STOP}") from error
    except SystemExit as error:
        if error.code or is_over():
            raise
        raise ConfigError(f"the script has called sys.exit(0), and the job is not finished: {_STOP}") from error
