"""On a terminal a bar follows the training; elsewhere every line is as it was."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tidewater.elastic.observe.bar import Bar, bar_of, text
from tidewater.elastic.observe.log import line, parse

CHECKOUT = Path(__file__).resolve().parents[3]
TERMINAL = {"TERM": "xterm"}
SCRIPT = """
from tidewater.elastic.observe.log import Log
log = Log("a")
log.event("prepared", steps=20)
for step in range(1, 5):
    log.progress(step=step, epoch=1, world_size=2, generation=1, loss=0.5, samples_per_s=850, rank=RANK)
log.event("peer_lost", peer="b")
"""


def report(step: int, *, rank: int = 0) -> Mapping[str, str]:
    said = {"step": step, "epoch": 3, "world_size": 2, "generation": 1, "loss": 0.31212, "samples_per_s": 850}
    return parse(line(**said, rank=rank, worker="a", time="now"))


def test_it_has_the_form_of_tqdm() -> None:
    shown = text(report(420), 1000, 21.0, 19.8, 100)
    assert shown.startswith("epoch 3:  42%|████")
    assert shown.endswith("| 420/1000 [00:21<00:29, 850samples/s, loss=0.3121, workers=2]")
    assert len(shown) == 100


def test_what_is_not_known_is_left_out() -> None:
    assert text(report(1), 9, 0.0, 0.0, 200).endswith("| 1/9 [00:00<?, 850samples/s, loss=0.3121, workers=2]")
    assert text(report(7), None, 3700.0, 0.25, 200).startswith("epoch 3: 7step [1:01:40, 850samples/s, ")


@pytest.mark.parametrize("columns", range(5, 120, 7))
@pytest.mark.parametrize("total", [None, 5, 1000])
def test_it_is_never_wider_than_the_terminal(columns: int, total: int | None) -> None:
    assert len(text(report(420), total, 21.0, 19.8, columns)) <= columns


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Return both ends of a terminal: that of a person, and that of programs."""
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


def run(terminal: tuple[int, int], *, rank: int, more: Mapping[str, str] = TERMINAL, shares: bool = True) -> str:
    """Return what a terminal gets from a program's standard error, and from its standard output if it shares."""
    environment = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"} | dict(more)
    command = [sys.executable, "-c", SCRIPT.replace("RANK", str(rank))]
    output = terminal[1] if shares else subprocess.DEVNULL
    subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, stdout=output, stderr=terminal[1])
    os.write(terminal[1], b"end")
    shown = b""
    while not shown.endswith(b"end"):
        shown += os.read(terminal[0], 65536)
    return shown.decode()


def screen(shown: str) -> list[str]:
    """Return the lines that a person sees: each as it was last written."""
    return [each.rpartition("\r\x1b[K")[2] for each in shown.split("\r\n")]


def test_on_a_terminal_events_are_above_the_bar_and_it_stays_at_the_end(terminal: tuple[int, int]) -> None:
    prepared, lost, bar, end = screen(run(terminal, rank=0))
    assert prepared.startswith("event=prepared")
    assert lost.startswith("event=peer_lost")
    assert bar.startswith("epoch 1:  20%")
    assert " 4/20 [" in bar
    assert end == "end"


def test_a_terminal_without_unicode_gets_a_bar_of_ascii(terminal: tuple[int, int]) -> None:
    bar = screen(run(terminal, rank=0, more={**TERMINAL, "PYTHONIOENCODING": "ascii"}))[-2]
    assert bar.startswith("epoch 1:  20%")
    assert bar.isascii()


def test_a_bar_on_standard_error_does_not_need_standard_output(terminal: tuple[int, int]) -> None:
    assert screen(run(terminal, rank=0, shares=False))[0].startswith("epoch 1:  20%")


@pytest.mark.parametrize(
    ("rank", "more"),
    [(1, TERMINAL), (0, {"TERM": "dumb"}), (0, {**TERMINAL, "KUBERNETES_SERVICE_HOST": "10.0.0.1"})],
    ids=["another rank", "a terminal that can't erase", "a pod"],
)
def test_others_write_lines(terminal: tuple[int, int], rank: int, more: Mapping[str, str]) -> None:
    shown = screen(run(terminal, rank=rank, more=more))
    assert [each.partition("=")[0] for each in shown] == ["event", *["step"] * 4, "event", "end"]


def test_a_file_gets_no_bar(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        assert bar_of(file, TERMINAL) is None


def test_the_remaining_time_follows_the_newest_steps(tmp_path: Path) -> None:
    """Half the workers are lost: the bar learns that soon, whatever came before."""
    now = 0.0
    with (tmp_path / "shown").open("w+") as stream:
        bar = Bar(stream, clock=lambda: now)
        bar.shows({"event": "prepared", "steps": "1000"})
        for step in range(1, 100):
            now += 0.1 if step < 80 else 1.0
            assert bar.shows(report(step))
            assert bar.shows(report(step, rank=1))
        bar.close()
        stream.seek(0)
        shown = stream.read()
    assert " 99/1000 [00:27<14:54, " in shown.splitlines()[-1]
