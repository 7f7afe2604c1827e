"""Processes can be ended in any state."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from tests.elastic.workers import free_port
from tests.processes import Process, cpu_seconds, is_alive, wait_for_port

PATIENCE_SECONDS = 60.0
"""For what takes milliseconds when nothing else runs; no process of these tests ends by itself before."""


def with_child(folder: Path) -> Process:
    process = Process("parent", ["sh", "-c", "sleep 600 & wait"], {}, folder)
    while len(process.tree()) < 2:
        time.sleep(0.01)
    return process


def test_ending_a_process_also_ends_its_frozen_descendants(tmp_path: Path) -> None:
    process = with_child(tmp_path)
    pids = process.tree()
    process.signal(signal.SIGSTOP)
    process.end()
    process.end()
    assert process.exit_code == -signal.SIGKILL
    assert process.tree() == []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, pids))


def test_a_signal_can_be_sent_to_the_first_process_only(tmp_path: Path) -> None:
    process = with_child(tmp_path)
    child = process.tree()[1]
    process.signal(signal.SIGTERM, whole_tree=False)
    try:
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM
        assert is_alive(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    process = Process("talker", ["sh", "-c", "echo one; echo two $WORD"], {"WORD": "three"}, tmp_path)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert process.last_lines(1) == "two three"


def test_no_process_listens_on_a_free_port() -> None:
    assert not wait_for_port(free_port(), 0.2)


def test_a_port_is_returned_once() -> None:
    ports = [free_port() for _ in range(300)]  # of 4000: with repetitions, all would hardly ever differ
    assert len(set(ports)) == len(ports)


def test_cpu_time_grows_with_work() -> None:
    before = cpu_seconds([os.getpid()])
    while cpu_seconds([os.getpid()]) < before + 0.05:
        sum(range(10_000))
    assert cpu_seconds([2**22]) == 0.0
