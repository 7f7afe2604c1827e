"""The command line: ``dataset``, ``packages`` and ``report``. Training has that of the training script.

python -m tidewater.elastic dataset --name digits --out DIR
python -m tidewater.elastic packages --bundle ZIP --out DIR
python -m tidewater.elastic report FILE… [--out report.png]
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from tidewater.contract import exit_codes
from tidewater.elastic.errors import ConfigError, TrainerError
from tidewater.elastic.observe.log import Log


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command. Return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments.pop(0) if arguments else ""
    try:
        if command == "dataset":
            return _dataset(arguments)
        if command == "packages":
            from tidewater.elastic.packages import install

            install.run(arguments, Log(socket.gethostname()))
            return exit_codes.FINISHED
        if command == "report":
            return _report(arguments)
        raise ConfigError(f"{command!r} is not a sub-command: use dataset, packages or report")
    except ConfigError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return exit_codes.USAGE
    except TrainerError as error:  # for example a download that broke off: a retry may succeed
        print(f"trainer: {error}", file=sys.stderr)
        return exit_codes.FAILED


def _dataset(arguments: list[str]) -> int:
    from tidewater.elastic.data import dataset

    parser = argparse.ArgumentParser(prog="trainer dataset", description=dataset.__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--name", help="a known dataset: digits")
    source.add_argument("--uri", help="a zip or tar archive of an ImageFolder: s3://, https:// or file://")
    parser.add_argument("--out", type=Path, required=True, help="directory to make")
    given = parser.parse_args(arguments)
    dataset.prepare(dataset.Source(given.name, given.uri), given.out, Log(socket.gethostname()))
    return exit_codes.FINISHED


def _report(arguments: list[str]) -> int:
    from tidewater.elastic.observe import chart, report

    parser = argparse.ArgumentParser(
        prog="trainer report",
        description="Summarise the workers' logs, and draw world size, loss and throughput over time.",
        epilog="On a cluster: kubectl logs -n training -l SELECTOR --prefix --tail=-1 > job.log",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="log of one worker or of several")
    parser.add_argument(
        "--out", type=Path, default=Path("report.png"), help="picture: .png, .svg or .pdf (default %(default)s)"
    )
    parser.add_argument("--no-picture", action="store_true", help="only the summary")
    given = parser.parse_args(arguments)
    seen = report.read(given.files)
    print(report.table(seen), end="")
    if not given.no_picture:
        chart.draw(seen, given.out)
        print(f"\npicture: {given.out}")
    return exit_codes.FINISHED
