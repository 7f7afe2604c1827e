"""Subcommands of `torchx`, as the command line calls them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tidewater_torchx import commands
from tidewater_torchx.commands import (
    CmdCancel,
    CmdDelete,
    CmdDescribe,
    CmdList,
    CmdLog,
    CmdRun,
    CmdStatus,
    moment,
)
from tidewater_torchx.scheduler import TidewaterScheduler
from torchx.cli import cmd_cancel, cmd_describe, cmd_list, cmd_run, cmd_status, main
from torchx.cli.argparse_util import ArgOnceAction, torchxconfig_run
from torchx.cli.cmd_base import SubCommand
from torchx.runner import Runner, config

from packages.torchx.tests.doubles import KubernetesInMemory, complete, ended, pod
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Selection
from tidewater.kube.errors import error_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Undeletable:
    """A scheduler of TorchX 0.7, which can't delete."""

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True)
def runner(scheduler: TidewaterScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands use the cluster in memory."""
    factories = {"tidewater": lambda session_name, **_: scheduler, "local": lambda session_name, **_: Undeletable()}
    for module in (commands, cmd_run, cmd_status, cmd_describe, cmd_list, cmd_cancel):
        monkeypatch.setattr(module, "get_runner", lambda **_: Runner("session", factories))
    monkeypatch.setattr(cmd_list, "get_scheduler_factories", lambda: factories)
    for module in (cmd_run, config):
        monkeypatch.setattr(module, "get_scheduler_factories", lambda: factories)


def run(command: SubCommand, *words: str) -> None:
    """Run a command line as TorchX's `main` does."""
    main.run_main({"it": command}, ["it", *words])


def called_anew() -> None:
    """Let TorchX forget which options were given, which it keeps for the life of a process."""
    for action in (torchxconfig_run, ArgOnceAction):
        action.called_args.clear()


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


def test_the_log_of_a_job_that_cannot_be_read_ends_with_a_sentence(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id: str = scheduler.submit(complete(), {})
    job = cluster.job(app_id)
    job["spec"].pop("rdzvEndpoint")
    cluster.put(JOBS, job)
    with pytest.raises(SystemExit, match="rdzvEndpoint"):
        run(CmdLog(), f"tidewater://session/{app_id}")


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
        (CmdRun, ["-s", "tidewater", "-cfg", "foo", "utils.echo"], "`foo` does not have at least one `key=value`"),
        (
            CmdRun,
            ["-s", "tidewater", "--workspace=", "utils.echo", "--image", "sha256:aaa"],
            "role echo: image sha256:aaa is only on this machine",
        ),
        *(
            (command, ["foo"], "foo is not of the form: <scheduler_backend>://")
            for command in (CmdStatus, CmdDescribe, CmdCancel, CmdDelete)
        ),
    ],
)
def test_an_error_for_the_user_is_a_sentence(
    cluster: KubernetesInMemory,
    command: type[SubCommand],
    words: list[str],
    told: str,
) -> None:
    called_anew()
    cluster.failures["list", names.KIND] = error_of(403, "Forbidden", 'cannot list resource "elasticjobs"')
    with pytest.raises(SystemExit) as end:
        run(command(), *words)
    assert told in str(end.value)


DDP = ["-s", "tidewater", "--dryrun", "--workspace=", "dist.ddp", "--script", "a.py", "--image", "a"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-j", "0x1"], "role a: num_replicas=0 must be between 1"),
        (["-j", "ax1"], "component dist.ddp: Invalid format for -j"),
        (["-h", "nope"], "component dist.ddp: No named resource found for `nope`"),
        (["--env", "A"], "component dist.ddp: `A` does not have at least one `key=value` pair"),
        (["--mounts", "type=volume,src=x"], "component dist.ddp: a mount of --mounts has no dst="),
        (["--mounts", "type=bind,dst=/x"], "component dist.ddp: a mount of --mounts has no src="),
        (["--mounts", "type=foo,src=x,dst=/a"], "component dist.ddp: invalid mount type 'foo'"),
    ],
)
def test_what_a_component_refuses_is_a_sentence(cluster: KubernetesInMemory, words: list[str], told: str) -> None:
    for line in ([*DDP, *words], [each for each in [*DDP, *words] if each != "--dryrun"]):
        called_anew()
        with pytest.raises(SystemExit) as end:
            run(CmdRun(), *line)
        assert str(end.value).startswith(told)
    assert cluster.list(JOBS).items == []


def test_an_error_of_a_component_that_is_only_a_key_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from torchx.specs import AppDef\n"
        'def f(a: str = "") -> AppDef:\n    """F.\n\n    Args:\n        a: A.\n    """\n    return {}["gone"]\n'
    )
    called_anew()
    with pytest.raises(SystemExit, match=r"^component .*mine.py:f: KeyError gone$"):
        run(CmdRun(), "-s", "tidewater", "--workspace=", f"{file}:f")


def test_an_error_of_this_package_keeps_its_trace(
    scheduler: TidewaterScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("broken")

    called_anew()
    monkeypatch.setattr(scheduler, "_validate", broken)
    with pytest.raises(KeyError, match="broken"):
        run(CmdRun(), *DDP)


@pytest.mark.parametrize("section", ["foo = 1", "foo = None", "reserved_memmb = abc", "validate_spec = maybe"])
def test_a_wrong_option_of_torchxconfig_is_an_error_that_names_it_and_the_file(
    cluster: KubernetesInMemory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    section: str,
) -> None:
    file = tmp_path / ".torchxconfig"
    file.write_text(f"[local]\nbar = 1\n[tidewater]\n{section}\n")
    monkeypatch.setenv("TORCHXCONFIG", str(file))
    called_anew()
    with pytest.raises(SystemExit) as end:
        run(CmdRun(), "-s", "tidewater", "--workspace=", "utils.echo", "--image", "a")
    assert str(end.value).startswith(f"{file}: ")
    assert section.partition(" ")[0] in str(end.value)
    assert cluster.list(JOBS).items == []


def test_right_options_of_torchxconfig_are_taken(
    cluster: KubernetesInMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / ".torchxconfig"
    file.write_text("[tidewater]\nnamespace = team\nvalidate_spec = no\nqueue = None\nreserved_memmb = 0\n")
    monkeypatch.setenv("TORCHXCONFIG", str(file))
    called_anew()
    run(CmdRun(), "-s", "tidewater", "--workspace=", "utils.echo", "--image", "a")
    (job,) = cluster.list(JOBS, Selection("team")).items
    assert job["metadata"]["namespace"] == "team"


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
