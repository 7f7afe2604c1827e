"""`torchx delete`, and `torchx log --since`, as the command line calls them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

import pytest
from torchx.cli import main
from torchx.cli.cmd_base import SubCommand
from torchx.runner import Runner

from integrations.torchx import commands
from integrations.torchx.commands import CmdDelete, CmdLog, moment
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
    monkeypatch.setattr(commands, "get_runner", lambda: Runner("session", factories))


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


@pytest.mark.parametrize("text", ["", "soon", "10", "-5m"])
def test_what_is_no_time_is_said(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time; write 10m"):
        moment(text)
