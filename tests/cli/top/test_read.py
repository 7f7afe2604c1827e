"""One look asks the API server for everything, and one worker that is silent does not spoil it."""

from __future__ import annotations

import threading

import pytest

from tests.cli.top.fakes import FakeClock, FakeCluster, forbidden
from tests.cli.top.objects import PORT, Trainer, event, job, pod
from tidewater.cli.top import read
from tidewater.cli.top.read import Wanted, look
from tidewater.kube.cluster import ALL_NAMESPACES
from tidewater.kube.errors import NotFound, Unreachable
from tidewater.kube.http import CONNECT_SECONDS

NOW = FakeClock().now()


def cluster() -> FakeCluster:
    """Return a cluster with two jobs, one of them with two workers; the first worker answers."""
    made = FakeCluster(
        elasticjobs=[job(), job("other")],
        pods=[pod(0), pod(1), pod(0, owner="other", phase="Pending")],
        events=[event("ExitedWithCode", "exit code 1"), event("ElasticJobRunning", "runs", of="other")],
    )
    trainer = Trainer()
    trainer.trains(3)
    made.pages["digits-worker-0"] = lambda: trainer.page
    return made


def test_all_jobs_of_the_namespace_have_their_own_pods_and_events() -> None:
    digits, other = look(cluster(), Wanted(), NOW).jobs
    assert [worker.name for worker in digits.workers] == ["digits-worker-0", "digits-worker-1"]
    assert [worker.name for worker in other.workers] == ["other-worker-0"]
    assert [note.reason for note in digits.notes] == ["ExitedWithCode"]
    assert [note.reason for note in other.notes] == ["ElasticJobRunning"]


def test_without_jobs_it_is_said_where_there_are_some() -> None:
    assert look(cluster(), Wanted(), NOW).none == ""
    elsewhere = cluster()
    elsewhere.namespace = "empty"
    found = look(elsewhere, Wanted(namespace="empty"), NOW)
    assert found.none.startswith("There are no jobs in namespace empty. There are in training (2)")


def test_a_worker_that_does_not_answer_is_shown_with_the_reason() -> None:
    digits, other = look(cluster(), Wanted(), NOW).jobs
    first, second = digits.workers
    assert first.scraped.readings[PORT].steps == 3
    assert (dict(second.scraped.readings), "digits-worker-1" in second.scraped.silence) == ({}, True)
    assert other.workers[0].scraped.silence == ""  # it does not run yet, so it is not asked


def test_a_worker_that_hangs_holds_up_the_look_for_its_time_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_SCRAPE_SECONDS", 3.0)  # the other worker must answer within it on a busy machine too
    hanging = cluster()
    waiting = threading.Event()
    hanging.pages["digits-worker-1"] = lambda: str(waiting.wait(60))
    first, second = look(hanging, Wanted("digits"), NOW).jobs[0].workers
    waiting.set()
    assert "no answer within" in second.scraped.silence
    assert first.scraped.silence == ""


def test_one_job_is_asked_for_by_name() -> None:
    (only,) = look(cluster(), Wanted("other"), NOW).jobs
    assert only.name == "other"
    assert [worker.name for worker in only.workers] == ["other-worker-0"]


def test_a_job_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(NotFound, match="digts"):
        look(cluster(), Wanted("digts"), NOW)


def test_all_namespaces_are_read_if_wanted() -> None:
    several = cluster()
    several.objects["elasticjobs"].append(job("far", namespace="prod"))
    assert len(look(several, Wanted(), NOW).jobs) == 2
    assert len(look(several, Wanted(namespace=ALL_NAMESPACES), NOW).jobs) == 3


def test_without_the_right_to_list_events_there_are_none() -> None:
    restricted = cluster()
    restricted.refused["events"] = forbidden("events")
    assert look(restricted, Wanted("digits"), NOW).jobs[0].notes == ()


def test_an_api_server_that_takes_too_long_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "LIST_SECONDS", 0.05)
    hanging, waiting = cluster(), threading.Event()
    monkeypatch.setattr(hanging, "list", lambda kind, selection: waiting.wait(60))
    with pytest.raises(
        Unreachable, match=r"https://cluster\.test can't be reached: no answer within 0\.05 s"
    ) as caught:
        look(hanging, Wanted(), NOW)
    waiting.set()
    assert "--context" in caught.value.remedy


def test_the_lists_wait_longer_than_a_connection_whose_error_says_more() -> None:
    assert read.LIST_SECONDS > CONNECT_SECONDS


def test_without_an_answer_of_the_api_server_there_is_no_sample() -> None:
    down = cluster()
    down.refused["pods"] = Unreachable("the API server can't be reached")
    with pytest.raises(Unreachable):
        look(down, Wanted(), NOW)
