"""A job with a thousand workers is a summary and the rows of the worst ones, within the terminal's size."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.cli.top.objects import PORT, job, pod, unschedulable
from tests.cli.top.test_view import NOW, printed
from tidewater.cli.top.crowd import MOST_ROWS, summary, worst
from tidewater.cli.top.model import Model, advance
from tidewater.cli.top.samples import Job, Sample, job_sample
from tidewater.cli.top.sampling import NO_ANSWERS, Answers
from tidewater.cli.top.scrape import Reading, Scraped


def thousand(*, size: int = 1000, look: int = 1, asked: int = 1000) -> tuple[Job, Answers]:
    """Return a job of a thousand: 17 is slow, 18 waits, 19 is silent, 20 to 29 have no room, 30 crashes."""
    pods: list[dict[str, Any]] = [pod(index) for index in range(size)]
    for index in range(20, min(size, 30)):
        pods[index] = unschedulable(index)
    pods[30] = pod(30, containerStatuses=[{"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}])
    fields: dict[int, dict[str, Any]] = {17: {"step": 80, "straggler": 0.5}, 18: {"waited": 50.0}}
    answers: dict[tuple[str, int], Reading | str] = {
        (f"uid-digits-worker-{index}", PORT): Reading(
            **{"at": look, "steps": 100 * look, "step": 100 * look, "waited": 1.0, "samples": 300 * look}
            | fields.get(index, {})
        )
        for index in range(asked)
        if not 20 <= index <= 30
    }
    answers["uid-digits-worker-19", PORT] = "no answer within 1.5 s"
    processes = [(each["metadata"]["uid"], PORT) for each in pods]
    known = NO_ANSWERS.then(processes, answers)
    metrics = {
        ("training", name := each["metadata"]["name"]): known.scraped(each["metadata"]["uid"], name, [PORT])
        for each in pods
    }
    return job_sample(job(), pods, [], metrics), known


def test_the_rows_are_the_worst_of_each_kind_first() -> None:
    found = [worker.index for worker in worst(thousand()[0].workers, 5)]
    assert found == [17, 19, 30, 18, 20]
    assert len(worst(thousand()[0].workers, 20)) == 20


def test_the_summary_counts_states_and_has_the_median_and_the_worst() -> None:
    assert dict(summary(thousand()[0].workers)) == {
        "workers": "989 Running  10 Unschedulable  1 CrashLoopBackOff  1 without an answer",
        "steps": "median 100  lowest 80 (digits-worker-17)  of 988 asked in this look",
        "waits": "median 0.01 s per step  most 0.5 s (digits-worker-18)",
    }
    assert [label for label, _ in summary(job_sample(job(), [unschedulable(0)], [], {}).workers)] == ["workers"]


@pytest.mark.parametrize("lines", [23, 36, 60])
def test_the_screen_fits_the_terminal_and_says_how_many_are_asked(lines: int) -> None:
    found, answers = thousand(asked=51)
    model = advance(None, Sample(NOW, (found,), answers=answers))
    text = [line.rstrip() for line in printed(model, lines=lines, columns=110).splitlines()]
    assert len(text) <= lines
    assert "workers     989 Running  10 Unschedulable  1 CrashLoopBackOff  1 without an answer" in text
    assert "1000 workers; 40 asked per look, in turn" in text
    assert any(line.startswith("digits-worker-17 ") for line in text)
    assert any(line.split()[:3] == ["digits-worker-19", "No", "answer"] for line in text)
    assert not any(line.startswith("digits-worker-999 ") for line in text)


def test_a_small_job_has_a_row_for_each_worker_and_no_summary() -> None:
    found, answers = thousand(size=MOST_ROWS, asked=MOST_ROWS)
    text = printed(advance(None, Sample(NOW, (found,), answers=answers)), lines=80)
    assert sum(line.startswith("digits-worker-") for line in text.splitlines()) == MOST_ROWS
    assert "asked per look" not in text
    assert "Unschedulable  1" not in text


def test_several_jobs_say_it_too() -> None:
    found, answers = thousand(asked=51)
    other = job_sample(job("other"), [], [], {})
    model: Model = advance(None, Sample(NOW, (found, other), answers=answers))
    assert "1000 workers; 40 asked per look, in turn" in printed(model)


def test_the_same_change_of_many_workers_is_one_line() -> None:
    before = [unschedulable(index) for index in range(1000)]
    after = [pod(index) for index in range(500)]
    samples = [Sample(NOW, (job_sample(job(), before, [], {}),)), Sample(NOW, (job_sample(job(), after, [], {}),))]
    later = Sample(NOW + timedelta(seconds=2), (job_sample(job(), [*after, pod(600)], [], {}),))
    model = advance(advance(advance(None, samples[0]), samples[1]), later)
    assert [line.text for line in model.lines] == [
        "500 Workers (500-999) are gone",
        "500 Workers (0-499): Unschedulable → Running",
        "Worker 600 is new: Running on node-1",
    ]


def test_processes_that_were_not_asked_count_as_fast_as_the_others() -> None:
    pods = [pod(index) for index in range(4)]

    def sample(look: int, asked: int) -> Sample:
        scraped = {
            ("training", f"digits-worker-{index}"): Scraped({PORT: Reading(at=look, steps=look, samples=30.0 * look)})
            if index < asked
            else Scraped(unasked=1)
            for index in range(4)
        }
        return Sample(NOW, (job_sample(job(), pods, [], scraped),))

    model = advance(advance(None, sample(1, 2)), sample(2, 2))
    assert model.jobs[0].throughput.last == pytest.approx(4 * 30)
