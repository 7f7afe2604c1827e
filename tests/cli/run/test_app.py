"""What is wrong is one sentence before anything starts; workers get what their pods would get."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.elastic.workers import free_port
from tidewater.cli.app import app
from tidewater.cli.run.app import Options, checkpoints_of, environment_of
from tidewater.cli.run.output import Output
from tidewater.contract import env

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "train.py").touch()
    return "train.py"


def refused(*words: str) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["run", *words])
    return done.exit_code, " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nope.py"], "there is no training script nope.py Flags of `tidewater run` come before the script"),
        (["--workers", "0", "train.py"], "--workers is 0, the least is 1"),
        (["--replace-after", "-1", "train.py"], "--replace-after is -1, the least is 0"),
        (["train.py", "--worker=w"], "--worker is for one worker, and `tidewater run` sets it for each Leave it out."),
        (
            ["train.py", "--job", "j"],
            "--job comes after the script Write it before the script: `tidewater run",
        ),
        (["--job", "a/b", "train.py"], "--job is 'a/b', it must not contain a slash"),
        (["--metrics-port", "65535", "train.py"], "makes ports up to 65536 for 2 workers; ports are from 1 to 65535"),
    ],
)
def test_wrong_flags_are_one_sentence(script: str, words: list[str], sentence: str) -> None:
    code, said = refused(*words)
    assert (code, said.startswith("error: "), sentence in said) == (2, True, True), said


def test_checkpoints_in_the_copy_of_a_folder_would_be_removed_so_they_are_refused(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / script).write_text("")
    words = ["--code", "project", script]
    absolute = f"Give an absolute path: --checkpoints {tmp_path / 'mine'}"
    code, said = refused(*words, "--checkpoints", "mine")
    assert (code, absolute in said) == (2, True), said
    monkeypatch.setenv(env.CHECKPOINTS, "mine")
    assert absolute in refused(*words)[1]


def test_a_metrics_port_that_is_in_use_is_named(script: str) -> None:
    port = free_port()
    with socket.create_server(("", port + 1)):
        code, said = refused("--metrics-port", str(port), script)
    assert (code, f"port {port + 1} can't be used: Address already in use" in said) == (2, True), said


def test_without_an_etcd_the_sentence_says_where_to_get_one(script: str) -> None:
    code, said = refused(script)
    assert code == 1
    assert said.startswith("error: the workers need an etcd, and PATH has no program `etcd` ")
    assert "apt-get install etcd-server" in said
    assert "--etcd http://HOST:2379 before the script" in said


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1"])
def test_an_etcd_that_does_not_answer_is_named(script: str, url: str) -> None:
    code, said = refused("--etcd", url, script)
    assert (code, said.startswith(f"error: no etcd can be reached at {url} ")) == (1, True), said


def test_workers_have_the_variables_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {env.DATA: "/data", env.JOB: "other", env.LOCAL_RANK: "1", env.LOCAL_SIZE: "2"}
    found = environment_of("train", Options(workers=3), "http://127.0.0.1:1", given)
    assert found == {
        env.DATA: "/data",
        env.JOB: "train",
        env.ETCD: "http://127.0.0.1:1",
        env.HOST: "127.0.0.1",
        env.MIN_WORKERS: "1",
        env.MAX_WORKERS: "3",
        env.CHECKPOINTS: str(tmp_path / "tidewater-runs" / "train" / "checkpoints"),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        ([], "/default"),
        (["--checkpoints", "/a"], "/a"),
        (["--epochs=1", "--checkpoints=s3://b/c"], "s3://b/c"),
        (["--checkpoints", "/a", "--checkpoints", "/b"], "/b"),
    ],
)
def test_the_checkpoints_are_where_the_scripts_flags_say(flags: list[str], place: str) -> None:
    assert checkpoints_of(flags, {env.CHECKPOINTS: "/default"}) == place


def test_the_scripts_help_needs_no_etcd(script: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path(script).write_text("import sys\nprint('flags:', *sys.argv[1:])\nsys.exit(5)\n")
    assert refused(script, "--lr=1", "--help") == (5, "")
    assert capfd.readouterr().out == "flags: --lr=1 --help\n"


@pytest.mark.parametrize(("no_color", "line"), [("", "\x1b[36mworker-0 |\x1b[0m text\n"), ("1", "worker-0 | text\n")])
def test_no_color_is_respected_on_a_terminal(
    no_color: str, line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": no_color}.items():
        monkeypatch.setenv(name, value)
    output = Output(1)
    output.line("worker-0", "text")
    output.flush()
    assert capfd.readouterr().out == line


def test_the_command_does_without_torch() -> None:
    code = "import sys, tidewater.cli.app, tidewater.cli.run.workers; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, timeout=60, check=False)
    assert done.returncode == 0
