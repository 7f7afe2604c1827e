"""Subcommands of `torchx`; TorchX finds them by the entry points `torchx.cli.cmds`.

torchx delete tidewater://torchx/training:app-kx3p
torchx log --since 10m tidewater://torchx/training:app-kx3p/trainer/0

TorchX 0.7 has no `delete`, and no `--since`. It ends with a stack trace for whatever a scheduler refuses, so its other
subcommands that ask a scheduler are here too, and end with the sentence alone.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from datetime import UTC, datetime, timedelta
from typing import Any

from torchx.cli.cmd_base import SubCommand
from torchx.cli.cmd_cancel import CmdCancel as TorchXCancel
from torchx.cli.cmd_describe import CmdDescribe as TorchXDescribe
from torchx.cli.cmd_list import CmdList as TorchXList
from torchx.cli.cmd_log import CmdLog as TorchXLog
from torchx.cli.cmd_log import get_logs
from torchx.cli.cmd_run import CmdRun as TorchXRun
from torchx.cli.cmd_status import CmdStatus as TorchXStatus
from torchx.runner import Runner, get_runner
from torchx.runner.config import find_configs
from torchx.specs import AppDryRunInfo, AppHandle, AppState, AppStatus, UnknownAppException
from torchx.specs.api import InvalidRunConfigException, MalformedAppHandleException, parse_app_handle
from torchx.specs.builders import materialize_appdef
from torchx.specs.finder import get_component

from tidewater.kube.errors import ErrorWithRemedy
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit import checks
from tidewater_torchx.submit.options import Strict

_DURATION = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_TOLD = (ErrorWithRemedy, Refused, InvalidRunConfigException, MalformedAppHandleException, UnknownAppException)
"""Errors with a text that says all that the user needs."""

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """End the program with the text of an error for the user, without a stack trace."""
    try:
        yield
    except _TOLD as error:
        sys.exit(str(error))


class Told(SubCommand):
    """A subcommand of TorchX, which is the next base class, with sentences for errors."""

    def run(self, args: argparse.Namespace) -> None:
        """Run the subcommand."""
        with _told():
            super().run(args)


class CmdRun(Told, TorchXRun):
    """`torchx run`, which also reports wrong options of a `.torchxconfig` and what a component refuses."""

    def _run(self, runner: Runner, args: argparse.Namespace) -> None:
        opts = runner.scheduler_run_opts(args.scheduler)
        if not isinstance(opts, Strict):  # of another scheduler
            super()._run(runner, args)
            return
        for file in find_configs():
            opts.check_section(_section(args.scheduler, file), file)
        super()._run(_Submitter(runner), args)


def _section(name: str, file: str) -> dict[str, str]:
    """Return a section of a `.torchxconfig`, empty if it isn't there, as `torchx.runner.config` reads it."""
    parser = ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign] # options are case-sensitive
    with open(file, encoding="utf-8") as text:
        parser.read_file(text)
    return dict(parser.items(name)) if parser.has_section(name) else {}


class _Submitter:
    """A runner as TorchX's `CmdRun` uses it, with sentences for what a component refuses.

    Only the component itself is watched: an error of a scheduler keeps its trace.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def dryrun_component(self, component: str, words: list[str], scheduler: str, **kwargs: Any) -> AppDryRunInfo:
        """Return what would be submitted.

        Raises:
            Refused: the component refuses its arguments, or its application can't run.
        """
        function = get_component(component).fn
        defaults = self._runner._component_defaults.get(component)
        try:
            app = materialize_appdef(function, words, defaults)
        except (ValueError, KeyError) as error:
            _log.debug("component %s", component, exc_info=True)  # its author wants to see where: --log_level
            raise Refused(f"component {component}: {_sentence(error)}") from error
        checks.check(app)  # TorchX's runner would end with a trace
        return self._runner.dryrun(app, scheduler, **kwargs)

    def run_component(self, component: str, words: list[str], scheduler: str, **kwargs: Any) -> AppHandle:
        """Submit an application; return its handle."""
        return self._runner.schedule(self.dryrun_component(component, words, scheduler, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def _sentence(error: ValueError | KeyError) -> str:
    """Return what an error of a component says. The text of a KeyError has quotes around it."""
    said = str(error.args[0]) if error.args else type(error).__name__
    if isinstance(error, KeyError) and said in ("src", "dst"):
        return f"a mount of --mounts has no {said}=; write type=volume,src=CLAIM,dst=/PATH"
    return said if " " in said else f"{type(error).__name__} {said}"


class CmdStatus(Told, TorchXStatus):
    """`torchx status`."""


class CmdDescribe(Told, TorchXDescribe):
    """`torchx describe`."""


class CmdList(Told, TorchXList):
    """`torchx list`."""


class CmdCancel(Told, TorchXCancel):
    """`torchx cancel`."""


class CmdDelete(SubCommand):
    """`torchx delete`: remove an application, with its pods and their logs."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Add the application's handle."""
        subparser.add_argument("app_handle", type=str, help="torchx app handle (e.g. tidewater://session/app-id)")

    def run(self, args: argparse.Namespace) -> None:
        """Remove the application. End with an error if its scheduler can't remove any."""
        with _told(), get_runner() as runner:
            backend, _, app_id = parse_app_handle(args.app_handle)
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
        """Print the lines. End with an error if there is no such application, or a log can't be read."""
        with _told(), get_runner() as runner:
            reader = _Reader(runner, args.since)
            get_logs(sys.stdout, args.identifier, args.regex, args.tail, runner=reader, streams=args.streams)
        if reader.errors:
            sys.exit("\n".join(reader.errors))


class _Reader:
    """A runner as TorchX's `get_logs` uses it, which reads each log in a thread of its own.

    Attributes:
        errors: what the user must know of logs that couldn't be read, each once.
    """

    def __init__(self, runner: Runner, since: datetime | None) -> None:
        self._runner = runner
        self._since = since
        self.errors: dict[str, None] = {}

    def log_lines(self, *args: Any, **kwargs: Any) -> Iterator[str]:
        """Yield the runner's lines from that time on. A thread that ends with an error would print its stack trace."""
        try:
            yield from self._runner.log_lines(*args, **{"since": self._since, **kwargs})
        except _TOLD as error:
            self.errors[str(error)] = None

    def status(self, app_handle: str) -> AppStatus:
        """Return the application's status.

        Raises:
            UnknownAppException: there is no such application. TorchX would ask again and again.
            Refused: the application can't be read. TorchX would wait until it has started.
        """
        status: AppStatus | None = self._runner.status(app_handle)
        if status is None:
            raise UnknownAppException(app_handle)
        if status.state is AppState.UNKNOWN:
            raise Refused(status.msg)
        return status

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def moment(text: str, now: datetime | None = None) -> datetime:
    """Return the time that a text means: so long ago, or a date with a time.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    try:
        if found := _DURATION.fullmatch(text):
            return (now or datetime.now(UTC)) - timedelta(**{_UNITS[found[2]]: int(found[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 10m, or 2026-01-31T12:00:00") from None
