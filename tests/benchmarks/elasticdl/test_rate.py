"""The rate is that of the middle of a job, over all workers."""

from __future__ import annotations

import pytest

from benchmarks.elasticdl.rate import TooFew, loss_times, rate

LINE = "[2026-01-31 12:00:{:06.3f}] [INFO] [loop.py:184:add] Loss: 0.3 step=7\n"


def test_times_are_read_from_the_lines_with_a_loss_alone() -> None:
    log = LINE.format(1.25).replace(".250", ",250") + "[2026-01-31 12:00:02,000] [INFO] a server is back\n"
    log += LINE.format(3.5).replace(".500", ",500")
    first, second = loss_times(log)
    assert second - first == pytest.approx(2.25)


def test_a_steady_job_has_its_rate_whoever_logs() -> None:
    one = [0.5 * number for number in range(40)]
    other = [0.5 * number + 0.25 for number in range(40)]
    assert rate([*other, *one], records=100) == pytest.approx(400)


def test_a_slow_start_and_a_slow_end_do_not_count() -> None:
    steady = [100 + 0.5 * number for number in range(40)]
    assert rate([0.0, 50.0, *steady, 200.0, 300.0], records=100) == pytest.approx(200)


def test_a_job_that_said_too_little_has_no_rate() -> None:
    with pytest.raises(TooFew, match="only 3 lines"):
        rate([1.0, 2.0, 3.0], records=100)
