"""Runs the training of a training script, from the command line to the exit code.

raise SystemExit(run(training))                        # training(config) -> Training
raise SystemExit(run(training, flags=add_my_flags))    # their values are in config.user
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewater.elastic.config import AddFlags, Config, no_flags
from tidewater.elastic.errors import TrainerError
from tidewater.elastic.script.content import Build, Script
from tidewater.elastic.script.entry import Launched, configured, exit_code, refusing_early_ends
from tidewater.elastic.session.assembly import Ended, open_session


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
