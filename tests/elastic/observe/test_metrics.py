"""The metrics that Prometheus gets."""

from __future__ import annotations

import io
import signal
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from tests.elastic.workers import Worker, free_port
from tidewater.contract.metrics import READY_PATH
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.metrics import CAUSES, Metrics, PrometheusMetrics, open_metrics, serve_left_out
from tidewater.elastic.training import Report


class Clock:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def step(number: int, *, seconds: float = 1.0) -> Report:
    return Report(
        step=number,
        epoch=0,
        world_size=3,
        generation=7,
        loss=0.25,
        rank=2,
        lr=0.1,
        samples=tuple(range(20)),
        batch_size=60,
        step_seconds=seconds,
        wait_seconds=seconds / 4,
        useful_seconds=seconds,
    )


def made(clock: Clock) -> tuple[PrometheusMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return PrometheusMetrics(registry, job="digits", worker="w-0", clock=clock), registry


def test_a_committed_step_updates_every_training_metric() -> None:
    metrics, registry = made(Clock())
    for number in (1, 2):
        metrics.committed(step(number))
    values = {
        name: registry.get_sample_value(f"tidewater_{name}")
        for name in ("world_size", "generation", "rank", "step", "loss", "committed_steps_total", "samples_total")
    }
    assert values == {
        "world_size": 3,
        "generation": 7,
        "rank": 2,
        "step": 2,
        "loss": 0.25,
        "committed_steps_total": 2,
        "samples_total": 40,
    }
    assert registry.get_sample_value("tidewater_step_seconds_count") == 2
    assert registry.get_sample_value("tidewater_wait_seconds_total") == 0.5


def test_a_job_is_silent_for_each_worker_that_it_waits_for_until_it_goes_on() -> None:
    metrics, registry = made(Clock())

    def silent(worker: str) -> float | None:
        return registry.get_sample_value("tidewater_silent_seconds", {"waits_for": worker})

    metrics.silent(75.0, ("w-1", "w-2"))
    assert [silent(worker) for worker in ("w-1", "w-2", "")] == [75.0, 75.0, None]
    metrics.silent(80.0, ())
    assert [silent(worker) for worker in ("w-1", "w-2", "")] == [None, None, 80.0]
    metrics.silent(0.0, ())
    assert silent("") is None


def test_a_final_step_and_a_round_of_an_evaluation_are_progress_with_any_metrics() -> None:
    for metrics in (Metrics(), made(Clock())[0]):
        metrics.committed(step(1))
        first = metrics.progressed_at
        metrics.evaluated(0.1)
        assert 0 < first <= metrics.progressed_at


def test_goodput_counts_only_the_time_of_committed_steps() -> None:
    clock = Clock()
    metrics, registry = made(clock)
    assert metrics.goodput() == 0
    clock.now += 10  # importing and joining: training has not started yet, so this is no pause
    clock.now += 1
    metrics.committed(step(1))
    assert metrics.goodput() == pytest.approx(1.0)
    clock.now += 2  # a recovery, and the step after it
    metrics.committed(step(2))
    assert registry.get_sample_value("tidewater_goodput_ratio") == pytest.approx(2 / 3)
    assert registry.get_sample_value("tidewater_useful_seconds_total") == pytest.approx(2)
    assert registry.get_sample_value("tidewater_training_seconds_total") == pytest.approx(3)


def test_goodput_also_counts_an_evaluation() -> None:
    clock = Clock()
    metrics, registry = made(clock)
    clock.now += 1
    metrics.committed(step(1))
    clock.now += 3
    metrics.evaluated(3)
    assert registry.get_sample_value("tidewater_goodput_ratio") == pytest.approx(1.0)


def test_recoveries_are_measured_by_cause_from_what_the_log_reports() -> None:
    metrics, registry = made(Clock())
    log = Log("w-0", stream=io.StringIO(), listener=metrics.event)
    log.event("recovered", seconds=0.07, cause="lost")
    log.event("resized", seconds=0.03, cause="joined")
    log.event("resized", seconds=0.04, cause="joined")
    counts = {
        cause: registry.get_sample_value("tidewater_recovery_seconds_count", {"cause": cause})
        for cause in ("lost", "joined", "left")
    }
    assert counts == {"lost": 1, "joined": 2, "left": 0}
    assert registry.get_sample_value("tidewater_recovery_seconds_sum", {"cause": "joined"}) == pytest.approx(0.07)


def test_every_cause_of_a_recovery_has_a_counter_from_the_start_so_that_prometheus_sees_the_first_one() -> None:
    _, registry = made(Clock())
    counts = {
        cause: registry.get_sample_value("tidewater_recovery_seconds_count", {"cause": cause}) for cause in CAUSES
    }
    assert counts == dict.fromkeys(("start", "lost", "left", "joined"), 0)


def test_a_checkpoint_that_fails_is_counted() -> None:
    metrics, registry = made(Clock())
    log = Log("w-0", stream=io.StringIO(), listener=metrics.event)
    log.event("checkpoint_failed", step=1, path="/data", error="no space left on device")
    assert registry.get_sample_value("tidewater_checkpoint_failures_total") == 1
    assert registry.get_sample_value("tidewater_checkpoints_saved_total") == 0


def test_without_a_port_no_metrics_are_collected_or_served() -> None:
    assert type(open_metrics(0, job="digits", worker="w-0")) is Metrics


def test_prometheus_can_scrape_the_metrics_and_a_port_in_use_is_named() -> None:
    port = free_port()
    open_metrics(port, job="digits", worker="w-0").committed(step(5))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert "tidewater_step 5.0" in text.splitlines()
    assert 'tidewater_worker_info{job_name="digits",worker="w-0"} 1.0' in text.splitlines()
    with pytest.raises(ConfigError, match=f"--metrics-port {port} cannot be used .*choose another"):
        open_metrics(port, job="digits", worker="w-1")


def code(port: int) -> int:
    """Return how the port answers a readiness probe."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{READY_PATH}", timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_worker_is_ready_from_when_it_has_joined_the_others() -> None:
    port = free_port()
    metrics = open_metrics(port, job="digits", worker="w-0")
    log = Log("w-0", stream=io.StringIO(), listener=metrics.event)
    log.event("started", job="digits")
    assert code(port) == 503
    log.event("joined", generation=1, rank=0, world_size=1)
    log.event("peer_lost", peer="w-1", generation=2)
    assert code(port) == 200


def test_a_worker_with_its_first_process_left_out_is_ready() -> None:
    port = free_port()
    serve_left_out(port, job="digits", worker="w-0/0", gpu="0", code=200)
    assert code(port) == 200


@pytest.mark.e2e
def test_real_workers_show_their_shares_of_the_samples_and_the_recovery_from_a_kill(
    start: Callable[..., Worker],
) -> None:
    port = free_port()
    a = start("a", "--epochs", "2000", "--min-step-seconds", "0.05", "--metrics-port", str(port))
    a.wait_for(lambda worker: worker.steps())
    b = start("b", "--epochs", "2000", "--min-step-seconds", "0.05")
    b.wait_for_world(2)
    b.signal(signal.SIGKILL)
    a.wait_for(lambda worker: worker.events("recovered"))
    a.wait_for_world(1)
    assert code(port) == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("tidewater_"))
    assert values['tidewater_recovery_seconds_count{cause="lost"}'] == "1.0"
    assert values['tidewater_recovery_seconds_count{cause="joined"}'] == "1.0"
    assert values["tidewater_world_size"] == "1.0"
    assert float(values["tidewater_samples_total"]) < 64 * float(values["tidewater_committed_steps_total"])
    assert 0 < float(values["tidewater_goodput_ratio"]) <= 1
