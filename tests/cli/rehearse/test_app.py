"""What is wrong is one sentence before anything starts, and no flag of a script makes the runs incomparable."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidewater.cli.app import app
from tidewater.cli.errors import CliError
from tidewater.cli.rehearse.app import Options, command_of, farm_of
from tidewater.contract import env

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nope.py"], "there is no training script nope.py Flags of `tidewater rehearse` come before the script"),
        (["--workers", "1", "train.py"], "--workers is 1, the least is 2: one of them is killed"),
        (["--steps", "29", "train.py"], "--steps is 29, the least is 30: the faults need so many"),
        (["--samples", "-1", "train.py"], "--samples is -1, the least is 1"),
        (["--report", "away/r.json", "train.py"], "--report is away/r.json, and"),
        (["train.py", "--job", "j"], "--job is for one worker, and `tidewater rehearse` sets it for each"),
        (["train.py", "--etcd=u"], "--etcd comes after the script Write it before the script: `tidewater rehearse"),
        (["--etcd", "http://127.0.0.1:1", "train.py"], "no etcd can be reached at http://127.0.0.1:1"),
    ],
)
def test_wrong_flags_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["rehearse", *words])
    said = " ".join(done.stderr.split())
    assert (done.exit_code in (1, 2), said.startswith("error: "), sentence in said) == (True, True, True), said


def test_the_last_flags_are_those_of_the_rehearsal() -> None:
    command = command_of(["/", "train.py", "--epochs", "1", "--batch-policy", "scale"], Options(steps=40))
    assert command[:4] == ["/", "train.py", "--epochs", "1"]
    last = {flag: value for flag, value in pairwise(command) if flag.startswith("--")}
    assert (last["--epochs"], last["--batch-policy"], last["--max-steps"]) == ("1000000", "keep", "40")


def test_where_torch_is_missing_a_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", **env.FIXED_HASHES}
    with pytest.raises(CliError, match="no torch here") as caught, farm_of(tmp_path, environment):
        pass
    assert caught.value.remedy == "The workers need torch and numpy, in the environment of this command."


def test_the_command_does_without_torch() -> None:
    code = "import sys, tidewater.cli.rehearse.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0
