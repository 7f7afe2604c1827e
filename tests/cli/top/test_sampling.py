"""A look at a thousand workers makes few requests, reaches all of them in turn, and always asks the bad ones."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import pairwise

import pytest

from tests.cli.top.fakes import FakeClock, FakeCluster
from tests.cli.top.objects import PORT, Trainer, job, pod
from tidewater.cli.top import read
from tidewater.cli.top.read import Wanted, look
from tidewater.cli.top.sampling import MOST_ASKED, NO_ANSWERS, Answers, Process, alternating, chosen
from tidewater.cli.top.scrape import Reading

MANY: list[Process] = [(f"uid-{index}", PORT) for index in range(1000)]


def fine(look: int) -> Reading:
    return Reading(at=float(look), steps=look + 1)


def looks(number: int, bad: dict[Process, Reading | str]) -> list[list[Process]]:
    """Return whom each look asks; `bad` are the answers of those that don't just train."""
    answers, asked = NO_ANSWERS, []
    for each in range(number):
        asked.append(chosen(MANY, answers))
        answers = answers.then(MANY, {process: bad.get(process, fine(each)) for process in asked[-1]})
    return asked


def test_few_processes_are_all_asked_in_each_look_in_their_order() -> None:
    few = MANY[:MOST_ASKED]
    answers = NO_ANSWERS.then(few, dict.fromkeys(few, "no answer"))
    assert chosen(few, NO_ANSWERS) == chosen(few, answers) == few
    assert not answers.in_turn


def test_each_look_asks_the_same_number_and_all_have_their_turn() -> None:
    asked = looks(34, {})
    assert {len(each) for each in asked} == {MOST_ASKED}
    assert {process for each in asked for process in each} == set(MANY)
    assert all(len(set(one) & set(other)) >= 2 for one, other in pairwise(asked)), "a rate needs two readings"


def test_once_it_is_known_a_bad_one_is_asked_in_every_look() -> None:
    slow = {MANY[700]: Reading(at=1.0, steps=9, straggler=0.5), MANY[701]: Reading(at=1.0, steps=9, waited=90.0)}
    bad: dict[Process, Reading | str] = {**slow, **{MANY[index]: "no answer" for index in (3, 999)}}
    asked = looks(60, bad)
    for process in bad:
        first = next(number for number, each in enumerate(asked) if process in each)
        assert all(process in each for each in asked[first:]), process


def test_hundreds_that_are_silent_take_neither_the_slowest_ones_place_nor_the_others_turn() -> None:
    bad: dict[Process, Reading | str] = dict.fromkeys(MANY[100:], "no answer")
    bad[MANY[50]] = Reading(at=1.0, steps=9, straggler=0.5)
    asked = looks(80, bad)
    first = next(number for number, each in enumerate(asked) if MANY[50] in each)
    assert all(MANY[50] in each for each in asked[first:])
    turns = Counter(process for each in asked for process in each)
    assert min(turns[process] for process in MANY) >= 1
    assert {len(each) for each in asked} == {MOST_ASKED}


def test_workers_that_are_gone_are_forgotten() -> None:
    answers = NO_ANSWERS.then(MANY, {MANY[0]: "no answer", MANY[1]: fine(1)}).then(MANY[1:], {})
    assert set(answers.found) == set(answers.asked) == {MANY[1]}
    assert (answers.processes, answers.asked_last) == (999, 0)


def test_what_is_known_of_a_pod_says_how_much_of_it_is_old() -> None:
    pair: list[Process] = [("a", 1), ("a", 2)]
    answers = Answers().then(pair, {pair[0]: fine(1), pair[1]: "refused"}).then(pair, {pair[0]: fine(2)})
    found = answers.scraped("a", "digits-worker-0", (1, 2))
    assert (dict(found.readings), found.silence, found.unasked) == (
        {1: fine(2)},
        "port 2 of digits-worker-0: refused",
        1,
    )


def test_lists_alternate() -> None:
    assert alternating([1, 2, 3], [], [4, 1]) == [1, 4, 2, 3]


def test_a_look_at_a_thousand_workers_makes_forty_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_SCRAPE_SECONDS", 120.0)  # all answer at once; a busy machine must not make them late
    cluster = FakeCluster(elasticjobs=[job()], pods=[pod(index) for index in range(1000)])
    trainer, requests, lock = Trainer(), Counter[str](), threading.Lock()
    trainer.trains(3)
    page = trainer.page

    def proxy(name: str, port: int, path: str, namespace: str = "") -> str:
        with lock:
            requests[name] += 1
        return page

    monkeypatch.setattr(cluster, "proxy", proxy)
    answers = NO_ANSWERS
    for number in range(1, 4):
        sample = look(cluster, Wanted("digits"), FakeClock().now(), answers)
        answers = sample.answers
        assert requests.total() == number * MOST_ASKED
    known = [worker for worker in sample.jobs[0].workers if worker.scraped.readings]
    assert len(known) == len(requests) > 2 * MOST_ASKED - 20
    assert sum(worker.scraped.unasked for worker in sample.jobs[0].workers) == 1000 - MOST_ASKED


def test_of_many_jobs_each_has_a_process_among_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_SCRAPE_SECONDS", 120.0)
    names = [f"job-{index}" for index in range(8)]
    cluster = FakeCluster(
        elasticjobs=[job(name) for name in names],
        pods=[pod(index, owner=name) for name in names for index in range(20)],
    )
    sample = look(cluster, Wanted(), FakeClock().now())
    assert all(any(worker.scraped.silence for worker in each.workers) for each in sample.jobs)
    assert (sample.answers.processes, sample.answers.asked_last) == (160, MOST_ASKED)
