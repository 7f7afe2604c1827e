"""``trainer report`` on a recorded run: three workers; one is killed, one is asked to leave, one is started again."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tidewater.contract import exit_codes
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.main import main
from tidewater.elastic.observe import report

RECORDED = Path(__file__).parent / "recorded.log"


def line(step: int, seconds: float, *, generation: int = 1, rank: int = 0, size: int = 1) -> str:
    """Return the report of a step, ``seconds`` after the full minute."""
    return (
        f"step={step} epoch=1 world_size={size} generation={generation} loss=0.5 samples_per_s=100 rank={rank} "
        f"worker=w-{rank} time=2026-01-01T00:00:{seconds:06.3f}Z"
    )


def change(seconds: float, took: float, *, generation: int, cause: str, rank: int = 0) -> str:
    """Return the line of a membership change, ``seconds`` after the full minute."""
    return (
        f"event=recovered seconds={took} cause={cause} step=1 world_size=1 generation={generation} "
        f"worker=w-{rank} time=2026-01-01T00:00:{seconds:06.3f}Z"
    )


def test_the_report_of_a_recorded_run_has_each_change_once() -> None:
    seen = report.read([RECORDED])
    assert [(each.cause, each.world_size) for each in seen.changes] == [
        ("joined", 2),
        ("joined", 3),
        ("lost", 2),
        ("left", 1),
        ("joined", 2),
    ]
    assert seen.changes[2].seconds == max(map(float, re.findall(r" seconds=(\S+) cause=lost ", RECORDED.read_text())))
    assert seen.workers == ("digits-0", "digits-1", "digits-2")
    steps = [point.step for point in seen.points]
    assert steps == sorted(set(steps))
    assert seen.accuracy is not None
    assert 0.9 < seen.accuracy < 1
    assert 0.9 < report.goodput(seen) < 1


def test_line_prefixes_of_kubectl_are_ignored(tmp_path: Path) -> None:
    plain = tmp_path / "plain.log"
    plain.write_text("\n".join(text.split("] ", 1)[1] for text in RECORDED.read_text().splitlines()))
    assert report.read([plain]) == report.read([RECORDED])


def test_the_summary_has_all_key_figures() -> None:
    seen = report.read([RECORDED])
    text = report.table(seen)
    steps, accuracy = f"1 to {seen.points[-1].step}", f"accuracy {seen.accuracy}"
    for words in (steps, accuracy, "goodput", "samples/s", "lost    1", "joined  3", "steps discarded"):
        assert words in text


def test_pauses_and_repeated_work_count_as_lost_time() -> None:
    undisturbed = [line(step, float(step)) for step in range(1, 11)]
    assert report.goodput(report.history(undisturbed, source="x")) == 1.0
    paused = [
        *undisturbed,
        change(13, 3.0, generation=2, cause="lost"),
        line(11, 14.0, generation=2),
        line(12, 15.0, generation=2),
    ]
    assert report.goodput(report.history(paused, source="x")) == pytest.approx(1 - 3 / 14)
    repeated = [*undisturbed, *(line(step, 10.0 + step - 7, generation=2) for step in (8, 9, 10, 11))]
    assert report.goodput(report.history(repeated, source="x")) == pytest.approx(1 - 3 / 13)


def test_time_without_any_live_worker_counts_as_lost() -> None:
    lines = [*(line(step, float(step)) for step in (1, 2, 3)), change(33, 0.2, generation=2, cause="lost")]
    lines.append(line(4, 33.1, generation=2))
    assert report.goodput(report.history(lines, source="x")) == pytest.approx(3 / 32.1)


def test_of_several_reports_of_a_step_the_lowest_ranks_report_counts() -> None:
    seen = report.history([line(1, 0.2, rank=1, size=2), line(1, 0.1, rank=0, size=2)], source="x")
    assert [point.rank for point in seen.points] == [0]


def test_a_line_that_a_killed_worker_left_unfinished_is_skipped() -> None:
    seen = report.history([line(1, 0.1), "step=2 epoch=1 world_size=1 loss=0.", line(2, 0.3)[:40]], source="x")
    assert [point.step for point in seen.points] == [1]


def test_a_file_that_is_not_a_log_is_named(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello\n")
    with pytest.raises(ConfigError, match=r"notes\.txt: no line with step="):
        report.read([other])
    with pytest.raises(ConfigError, match=r"absent\.log cannot be read: No such file"):
        report.read([tmp_path / "absent.log"])


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_picture_has_the_format_of_its_file_suffix(tmp_path: Path, suffix: str, begins: bytes) -> None:
    out = tmp_path / f"report.{suffix}"
    assert main(["report", str(RECORDED), "--out", str(out)]) == exit_codes.FINISHED
    assert out.read_bytes().startswith(begins)


def test_without_matplotlib_the_summary_is_still_printed_and_the_remedy_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["report", str(RECORDED), "--out", str(tmp_path / "x.png")]) == exit_codes.USAGE
    printed = capsys.readouterr()
    assert "goodput" in printed.out
    assert "pip install matplotlib" in printed.err


def test_a_suffix_that_is_not_a_picture_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(RECORDED), "--out", str(tmp_path / "report.txt")]) == exit_codes.USAGE
    assert "report.txt: the picture cannot be written" in capsys.readouterr().err
