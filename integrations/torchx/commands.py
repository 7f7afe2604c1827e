"""Subcommands of `torchx` that 0.7 doesn't have; TorchX finds them by the entry points `torchx.cli.cmds`.

torchx delete tidewater://torchx/training:app-kx3p
torchx log --since 10m tidewater://torchx/training:app-kx3p/trainer/0
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from torchx.cli.cmd_base import SubCommand
from torchx.cli.cmd_log import CmdLog as TorchXLog
from torchx.cli.cmd_log import get_logs
from torchx.runner import Runner, get_runner
from torchx.specs.api import parse_app_handle

_DURATION = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class CmdDelete(SubCommand):
    """`torchx delete`: remove an application, with its pods and their logs."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Add the application's handle."""
        subparser.add_argument("app_handle", type=str, help="torchx app handle (e.g. tidewater://session/app-id)")

    def run(self, args: argparse.Namespace) -> None:
        """Remove the application. End with an error if its scheduler can't remove any."""
        backend, _, app_id = parse_app_handle(args.app_handle)
        with get_runner() as runner:
            delete = getattr(runner._scheduler(backend), "delete", None)  # TorchX 0.7 has no public way to it
            if delete is None:
                sys.exit(f"scheduler {backend} can't delete applications; torchx cancel ends them")
            delete(app_id)


class CmdLog(TorchXLog):
    """`torchx log`, with `--since`, which TorchX has in Python and not on its command line."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Add TorchX's arguments and `--since`."""
        subparser.add_argument(
            "--since",
            type=moment,
            default=None,
            metavar="TIME",
            help="only lines since then: 30s, 10m, 2h, 1d, or a time as 2026-01-31T12:00:00",
        )
        super().add_arguments(subparser)

    def run(self, args: argparse.Namespace) -> None:
        """Print the lines."""
        with get_runner() as runner:
            reader = _Since(runner, args.since)
            get_logs(sys.stdout, args.identifier, args.regex, args.tail, runner=reader, streams=args.streams)


class _Since:
    """A runner whose logs begin at a time; everything else is the runner's."""

    def __init__(self, runner: Runner, since: datetime | None) -> None:
        self._runner = runner
        self._since = since

    def log_lines(self, *args: Any, **kwargs: Any) -> Iterable[str]:
        """Return the runner's lines from that time on."""
        lines: Iterable[str] = self._runner.log_lines(*args, **{"since": self._since, **kwargs})
        return lines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def moment(text: str, now: datetime | None = None) -> datetime:
    """Return the time that a text means: so long ago, or a date with a time.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    if found := _DURATION.fullmatch(text):
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 10m, or 2026-01-31T12:00:00") from None
