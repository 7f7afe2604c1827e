"""The master's log: ElasticDL's form, and progress now and then."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest
from elasticdl.errors import ElasticDLError
from elasticdl.job import log_to
from elasticdl.master.coordinator import Progress
from elasticdl.master.progress_log import EVERY_SECONDS, Teller, tell_end
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.state import Rules, Stage, begin


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    written = io.StringIO()
    log_to(written, "info")
    yield written
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_begins_with_time_level_and_place_as_elasticdls(stream: io.StringIO) -> None:
    logging.getLogger("elasticdl.master.executor").info("Evaluation metrics[step=%d]: %s", 200, {"accuracy": 0.97})
    head = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \[INFO\] \[test_progress_log\.py:\d+:test_\w+\]"
    assert re.fullmatch(rf"{head} Evaluation metrics.*\n", stream.getvalue())


def test_progress_is_told_every_so_often_and_only_if_there_is_some(stream: io.StringIO) -> None:
    now, progress = 0.0, Progress(Stage.WORK, 0, 20, 0, 0, 0, 2)
    teller = Teller(lambda: progress, lambda: now)

    def told() -> list[str]:
        stream.truncate(0)
        stream.seek(0)
        teller.tell()
        return stream.getvalue().splitlines()

    assert told() == []
    progress = Progress(Stage.WORK, 5, 20, 1, 500, 37, 2)
    now = EVERY_SECONDS - 0.1
    assert told() == []
    now = EVERY_SECONDS
    (line,) = told()
    assert line.endswith("Progress: 5 of 20 tasks done, epoch 1, version 37, 500 records, 50 records/s, 2 workers")
    now = 3 * EVERY_SECONDS
    assert told() == []
    progress = Progress(Stage.EVALUATE, 20, 20, 1, 2000, 99, 2)
    (line,) = told()
    assert line.endswith("Progress: 20 of 20 tasks done, now: evaluate")


def test_the_last_line_of_a_job_that_has_failed_has_the_reason_and_the_remedy(stream: io.StringIO) -> None:
    state = transitions.failed(begin(Rules(), range(1, 2)), str(ElasticDLError("the loss is nan", "lower the rate")))
    tell_end(state)
    assert stream.getvalue().splitlines()[-1].endswith("Job failed: the loss is nan. lower the rate")
