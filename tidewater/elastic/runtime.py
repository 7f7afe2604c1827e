"""Runs the training of a training script, from the command line to the exit code.

raise SystemExit(run(training))                        # training(config) -> Training
raise SystemExit(run(training, flags=add_my_flags))    # their values are in config.user

Or a loop of the script's own (see ``script.own_loop``):

config = init(flags=add_my_flags)
with session(config, model=model, optimizer=optimizer, dataset=dataset) as run:
    for batch in run.batches():
        run.step(criterion(model(batch[0]), batch[1]))
raise SystemExit(run.exit_code)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidewater.elastic.config import AddFlags, Config, no_flags
from tidewater.elastic.errors import ConfigError, TrainerError
from tidewater.elastic.script.content import Build, Script, begin
from tidewater.elastic.script.entry import Launched, configured, exit_code, refusing_early_ends
from tidewater.elastic.session.assembly import Ended, open_session
from tidewater.elastic.training import Training

if TYPE_CHECKING:
    import torch

    from tidewater.elastic.script.own_loop import Run

_opened = False
"""Whether this process has opened a session for a loop of the script's own."""


def run(build: Build, argv: Sequence[str] | None = None, *, flags: AddFlags = no_flags) -> int:
    """Train as one worker until the job is finished, or until SIGTERM. Return a code of ``contract.exit_codes``.

    Args:
        build: Called once in each process, with the same settings in all workers of a job.
        argv: The command line without the program's name; the process's own if None. In that case, a process without
            PYTHONHASHSEED executes its program again with it: see ``program.fix_hash_seed``.
        flags: Adds the script's own flags to an argparse group.
    """
    try:
        return _train(configured(argv, flags), build)
    except (Launched, Ended) as ended:
        return ended.code
    except TrainerError as error:
        return exit_code(error)


def _train(config: Config, build: Build) -> int:
    script = Script(build)
    try:
        with refusing_early_ends(), open_session(config, script.prepare) as opened:
            from tidewater.elastic.session.loop import Loop

            loop = Loop(opened.session, script.material(opened.session), opened.join)
            for prepared in loop.steps():
                loop.make(prepared)
            return opened.session.end()
    finally:
        script.close()


def init(argv: Sequence[str] | None = None, *, flags: AddFlags = no_flags) -> Config:
    """Return the settings of this worker, for a loop of the script's own; call it before the script builds anything.

    It seeds the global random generators, so that what the script builds is equal in all workers. With
    ``--processes`` above 1, this process starts the others, which run the script too, and ends with them.

    Args:
        argv: The command line without the program's name; the process's own if None, see ``run``.
        flags: Adds the script's own flags to an argparse group.

    Raises:
        SystemExit: Something is wrong with the settings (exit code 2), or this process has started others.
    """
    try:
        config = configured(argv, flags)
    except Launched as ended:
        raise SystemExit(ended.code) from None
    except TrainerError as error:
        raise SystemExit(exit_code(error)) from error
    begin(config)
    return config


@contextmanager
def session(config: Config, **fields: Any) -> Iterator[Run]:
    """Give a loop of the script's own its part in the job: ``run.batches()`` and ``run.step(loss)``.

    One session in a process. At the end of the block the worker leaves the job.

    Args:
        config: What ``init`` returns.
        fields: Those of ``Training`` but ``loss``, which the loop computes: ``model``, ``optimizer`` and ``dataset``,
            and what of the others is wanted. They have the same meaning.

    An exception of the script's code comes through as it is: this worker ends, and the others go on.

    Raises:
        SystemExit: Where ``run`` would return an exit code: the job has finished before (0), this worker has left (at
            the end of the block), or something is wrong; the sentence is on standard error then.
    """
    training = Training(**fields, loss=_loss_of_the_loop)
    try:
        _begin_session(config)
        with _run_of(config, training) as run:
            yield run
        if run.exit_code:  # a script that forgot it would end as if the job were finished
            raise SystemExit(run.exit_code)
    except Ended as ended:
        raise SystemExit(ended.code) from None
    except TrainerError as error:
        raise SystemExit(exit_code(error)) from error


def _begin_session(config: object) -> None:
    global _opened  # the sockets, threads and processes of a worker are those of its process
    if not isinstance(config, Config):
        raise ConfigError(
            f"tidewater.session() has got a {type(config).__name__} in place of the settings: give it what "
            "tidewater.init() returns"
        )
    if _opened:
        raise ConfigError(
            "this process has opened a session before, and a process is a worker of one job: start another process "
            "for another training"
        )
    _opened = True


def _loss_of_the_loop(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    raise ConfigError("the loop of the script computes the loss: give it to run.step()")


@contextmanager
def _run_of(config: Config, training: Training) -> Iterator[Run]:
    """Give the session's part to the script's loop; at the end of the loop, end the session."""
    from tidewater.elastic.script.own_loop import Run

    script = Script(lambda _: training, own_loop=True)
    try:
        with open_session(config, script.prepare) as opened:
            run = Run(opened, script.material(opened.session), script.reports, training.validation)
            with refusing_early_ends(lambda: run.is_over), run.guarded():
                yield run
                run.close()
    finally:
        script.close()
