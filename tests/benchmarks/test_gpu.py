"""The checks for one GPU run on the CPU too, with tiny sizes, and a failed one is named at the end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.elastic.systems import ROOT
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import device, output
from benchmarks.harness.records import Found, read, rows


@pytest.mark.e2e
@pytest.mark.parametrize(
    "check",
    [
        "one-rank",
        pytest.param("three-ranks-fp16", marks=pytest.mark.soak),
        pytest.param("one-rank-restarted", marks=pytest.mark.soak),
        pytest.param("resnet", marks=pytest.mark.soak),
        pytest.param("memory", marks=pytest.mark.soak),
        "ghost",
        pytest.param("behind", marks=pytest.mark.soak),
        pytest.param("own-time-out", marks=pytest.mark.soak),
        pytest.param("often", marks=pytest.mark.soak),
        pytest.param("full", marks=pytest.mark.soak),
        pytest.param("fails", marks=pytest.mark.soak),
        pytest.param("state", marks=pytest.mark.soak),
        pytest.param("micro-batches", marks=pytest.mark.soak),
        pytest.param("launches", marks=pytest.mark.soak),
    ],
)
def test_a_check_passes_on_the_cpu_and_its_rows_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    # The limits are made for the many cores of a machine with a GPU.
    patient = tuple(replace(each, limit_seconds=5 * each.limit_seconds) for each in command.CHECKS)
    monkeypatch.setattr(command, "CHECKS", patient)
    out = tmp_path / "rows.jsonl"
    assert command.main(["--device", "cpu", "--checks", check, "--out", str(out)]) == 0
    found = {row.measure: row for row in rows(read(out))}
    assert found.pop(f"check {check}").median == 1
    assert found
    assert {record.machine["device"] for record in read(out)} == {"cpu"}


def test_without_a_gpu_nothing_is_claimed_or_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "look", lambda kind: (device.MISSING, "torch sees no CUDA device"))
    out = tmp_path / "rows.jsonl"
    assert command.main(["--out", str(out)]) == 0
    assert capsys.readouterr().out == "No GPU here (torch sees no CUDA device): nothing was checked.\n"
    assert not out.exists()


def test_a_python_that_cannot_use_the_gpu_of_the_machine_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "look", lambda kind: (device.WRONG_PYTHON, "torch is not installed"))
    assert command.main(["--out", str(tmp_path / "rows.jsonl")]) == 2


def test_a_failed_check_does_not_stop_the_others_and_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = command.Check("missing", ("no_such_module",), 30, needs_etcd=False)
    endless = command.Check("endless", ("one_rank", "peer", "restarted", "1"), 0.2, needs_etcd=False)
    monkeypatch.setattr(command, "CHECKS", (missing, endless))
    seen = {"device": {"device": "cpu"}, "versions": {"torch": "2"}}
    monkeypatch.setattr(command, "look", lambda kind: (0, json.dumps(seen)))
    monkeypatch.setattr(command, "etcd", lambda: None)
    out = tmp_path / "rows.jsonl"
    assert command.main(["--device", "cpu", "--out", str(out)]) == 1
    printed = capsys.readouterr().out
    assert "missing: FAILED (1)" in printed
    assert "endless: FAILED (not over within its limit)" in printed
    assert printed.splitlines()[-1] == "failed: missing, endless"
    assert [record.values for record in read(out)] == [(0.0,), (0.0,)]


def test_all_checks_together_take_at_most_ten_minutes() -> None:
    assert sum(check.limit_seconds for check in command.CHECKS) < 600
    assert all((ROOT / "benchmarks" / "gpu" / f"{check.arguments[0]}.py").exists() for check in command.CHECKS)


def test_rows_are_found_among_other_output(capsys: pytest.CaptureFixture[str]) -> None:
    print("a warning")
    output.tell("form a group", "NCCL", [0.5], "s")
    assert output.rows(capsys.readouterr().out) == [Found("form a group", "NCCL", (0.5,), "s")]
    with pytest.raises(SystemExit, match="failed: the sum is right"):
        output.require(False, "the sum is right")
