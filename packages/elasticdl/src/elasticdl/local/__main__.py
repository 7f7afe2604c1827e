"""Run a job in one process: `python -m elasticdl.local --job_args JSON`, as the workers' programs take it."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from elasticdl.errors import InputError
from elasticdl.job import JobArgs
from elasticdl.local.job import run
from elasticdl.worker.main import LOG_FORMAT
from tidewater.contract import exit_codes


def main(argv: Sequence[str]) -> int:
    """Run a job; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m elasticdl.local", description="An elasticdl job in one process.")
    parser.add_argument("--job_args", required=True, help="the job's flags as JSON, see elasticdl.job")
    given = parser.parse_args(argv)
    logging.basicConfig(format=LOG_FORMAT, stream=sys.stdout, force=True)
    try:
        job = JobArgs.from_json(given.job_args)
    except InputError as error:
        logging.getLogger(__name__).error("%s", error)
        return exit_codes.USAGE
    logging.getLogger().setLevel(job.log_level.upper())
    return run(job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
