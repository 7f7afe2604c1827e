"""Subcommands of `torchx`, as the command line calls them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

import pytest
from torchx.cli import cmd_cancel, cmd_describe, cmd_list, cmd_run, cmd_status, main
from torchx.cli.argparse_util import ArgOnceAction, torchxconfig_run
from torchx.cli.cmd_base import SubCommand
from torchx.runner import Runner

from cli.access.answers import refused
from cli.errors import Answer
from contract.elasticjob import names
from integrations.torchx import commands
from integrations.torchx.commands import (
    CmdCancel,
    CmdDelete,
    CmdDescribe,
    CmdList,
    CmdLog,
    CmdRun,
    CmdStatus,
    moment,
)
from integrations.torchx.scheduler import TidewaterScheduler
from tests.integrations.torchx.doubles import KubernetesInMemory, complete, ended, pod

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Undeletable:
    """A scheduler of TorchX 0.7, which can't delete."""

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True)
def runner(scheduler: TidewaterScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands use the cluster in memory."""
    factories = {"tidewater": lambda session, **_: scheduler, "local": lambda session, **_: Undeletable()}
    for module in (commands, cmd_run, cmd_status, cmd_describe, cmd_list, cmd_cancel):
        monkeypatch.setattr(module, "get_runner", lambda **_: Runner("session", factories))
    monkeypatch.setattr(cmd_list, "get_scheduler_factories", lambda: factories)
    monkeypatch.setattr(cmd_run, "get_scheduler_factories", lambda: factories)


def run(command: SubCommand, *words: str) -> None:
    """Run a command line as TorchX's `main` does."""
    main.run_main({"it": command}, ["it", *words])


def test_delete_removes_the_application(scheduler: TidewaterScheduler) -> None:
    app_id = scheduler.submit(complete(), {})
    run(CmdDelete(), f"tidewater://session/{app_id}")
    assert scheduler.describe(app_id) is None


def test_delete_of_another_scheduler_says_that_it_cannot() -> None:
    with pytest.raises(SystemExit, match="scheduler local can't delete applications; torchx cancel ends them"):
        run(CmdDelete(), "local://session/app")


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], ["early", "late"]),
        (["--since", "2026-03-01T12:00:02+00:00"], ["late"]),
        (["--regex", "arly"], ["early"]),
        (["--since", "2026-03-01T12:00:02+00:00", "--tail"], ["late"]),
    ],
)
def test_log_has_torchxs_options_and_since(
    scheduler: TidewaterScheduler,
    cluster: KubernetesInMemory,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    lines: list[str],
) -> None:
    app_id: str = scheduler.submit(complete(), {})
    name = app_id.partition(":")[2]
    cluster.write(f"{name}-worker-0", "2026-03-01T12:00:01Z early", "2026-03-01T12:00:02Z late")
    cluster.become(app_id, "Succeeded", pod(name, 0, **ended(0)))
    run(CmdLog(), *options, f"tidewater://session/{app_id}/trainer_foo/0")
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == lines


@pytest.mark.parametrize("identifier", ["training:none", "training:none/trainer_foo", "training:none/trainer_foo/0,1"])
def test_the_log_of_what_does_not_exist_ends_with_a_sentence(
    capfd: pytest.CaptureFixture[str], identifier: str
) -> None:
    with pytest.raises(SystemExit, match="Unknown app = tidewater://session/training:none"):
        run(CmdLog(), f"tidewater://session/{identifier}")
    assert "Traceback" not in capfd.readouterr().err


def test_each_log_that_cannot_be_read_is_told_once(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory, capfd: pytest.CaptureFixture[str]
) -> None:
    app_id: str = scheduler.submit(complete(), {})
    cluster.become(app_id, "Running")
    with pytest.raises(SystemExit, match=r"^replica 7: role trainer_foo has replicas 0 to 0$"):
        run(CmdLog(), f"tidewater://session/{app_id}/trainer_foo/7,7")
    assert "Traceback" not in capfd.readouterr().err


HANDLE = "tidewater://session/nowhere"


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        (CmdStatus, [HANDLE], "'nowhere' is no application of this scheduler"),
        (CmdDescribe, [HANDLE], "'nowhere' is no application of this scheduler"),
        (CmdCancel, [HANDLE], "'nowhere' is no application of this scheduler"),
        (CmdDelete, [HANDLE], "'nowhere' is no application of this scheduler"),
        (CmdLog, [HANDLE], "'nowhere' is no application of this scheduler"),
        (CmdList, ["-s", "tidewater"], 'cannot list resource "elasticjobs"'),
        (
            CmdRun,
            ["-s", "tidewater", "--workspace=", "utils.echo", "--num_replicas", "9999"],
            "role echo: num_replicas=9999",
        ),
        (CmdRun, ["-s", "tidewater", "-cfg", "qeue=x", "utils.echo"], "Unknown run option: qeue"),
    ],
)
def test_an_error_for_the_user_is_a_sentence(
    cluster: KubernetesInMemory,
    monkeypatch: pytest.MonkeyPatch,
    command: type[SubCommand],
    words: list[str],
    told: str,
) -> None:
    for action in (torchxconfig_run, ArgOnceAction):
        monkeypatch.setattr(action, "called_args", set())
    cluster.failures["list", names.KIND] = refused(Answer(403, "Forbidden", 'cannot list resource "elasticjobs"'))
    with pytest.raises(SystemExit) as end:
        run(command(), *words)
    assert told in str(end.value)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("30s", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
    ],
)
def test_a_time_may_be_so_long_ago(text: str, ago: timedelta) -> None:
    assert moment(text, NOW) == NOW - ago


def test_a_time_may_be_a_date() -> None:
    assert moment("2026-03-01T12:00:00Z") == NOW
    assert moment("2026-03-01T12:00:00").tzinfo is not None


@pytest.mark.parametrize("text", ["", "soon", "10", "-5m", "9999999999d", f"{'9' * 20}s"])
def test_what_is_no_time_is_said(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time; write 10m"):
        moment(text)
