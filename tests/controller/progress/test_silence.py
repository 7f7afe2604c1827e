"""What the workers say becomes a sentence, and a worker that lies can't do more than that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.controller.decide.world import NOW, ago, pod
from tidewater.controller.progress.silence import Silence, judged, said, sentence
from tidewater.elastic.observe.metrics import PrometheusMetrics

PODS = {f"j-worker-{index}": pod(index) for index in range(8)}


def page(seconds: float = 0.0, *workers: str) -> str:
    """Return the metrics of a worker, as the trainer's own code makes them."""
    registry = CollectorRegistry()
    PrometheusMetrics(registry, job="j", worker="j-worker-0").silent(seconds, workers)
    return generate_latest(registry).decode()


def test_a_worker_that_makes_steps_says_nothing() -> None:
    assert said(page()) == (0.0, frozenset())
    assert judged({"j-worker-0": [page()]}, Silence(ago(90), ()), NOW) is None


def test_a_silent_job_waits_for_the_workers_that_any_process_names() -> None:
    answers = {"j-worker-0": [page(75.5, "j-worker-1/1")], "j-worker-1": [page(75.0), page(74.0, "j-worker-1/1")]}
    assert judged(answers, None, NOW) == Silence(ago(76), ("j-worker-1/1",))


def test_a_silence_keeps_its_beginning() -> None:
    before = Silence(ago(80), ())
    assert judged({"j-worker-0": [page(75.5, "j-worker-0")]}, before, NOW) == replace(before, workers=("j-worker-0",))
    assert judged({"j-worker-0": [page(20.0, "j-worker-0")]}, before, NOW) == Silence(ago(20), ("j-worker-0",))


def test_without_a_name_it_waits_for_a_worker_that_does_not_answer() -> None:
    answers = {"j-worker-0": [page(75.0)], "j-worker-1": [""]}
    assert judged(answers, None, NOW) == Silence(ago(75), ("j-worker-1",))


@pytest.mark.parametrize("before", [None, Silence(ago(90), ("j-worker-1",))])
def test_if_no_worker_answers_nothing_changes(before: Silence | None) -> None:
    assert judged({"j-worker-0": ["", ""], "j-worker-1": [""]}, before, NOW) == before


def test_only_pods_of_the_job_are_named() -> None:
    found = judged({"j-worker-0": [page(75.0, "j-worker-0", "rm -rf", "k-worker-0")]}, None, NOW)
    assert found == Silence(ago(75), ("j-worker-0",))


@pytest.mark.parametrize("number", ["1e+999", "9" * 400, "1.5.7", "-3.0", "NaN"])
def test_no_number_is_an_error(number: str) -> None:
    judged({"j-worker-0": [f'tidewater_silent_seconds{{waits_for=""}} {number}\n']}, None, NOW)


def test_the_sentence_names_workers_and_their_nodes() -> None:
    assert sentence(None, PODS) == ""
    start = " No step since 11:58:00 UTC:"
    assert sentence(Silence(ago(120), ()), PODS) == f"{start} it is not known which worker it waits for."
    assert sentence(Silence(ago(120), ("j-worker-1/3",)), PODS) == f"{start} it waits for j-worker-1/3 on node node-1."
    nowhere = {"j-worker-1": pod(1, node=None)}
    assert sentence(Silence(ago(120), ("j-worker-1",)), nowhere) == f"{start} it waits for j-worker-1."
    many = sentence(Silence(ago(120), tuple(PODS)), PODS)
    assert many.endswith("j-worker-4 on node node-4, 3 others.")
