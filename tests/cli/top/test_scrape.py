"""The workers' metrics are found and understood: those of the trainer's own code, and whatever else is served."""

from __future__ import annotations

import pytest

from tests.cli.top.objects import PORT, Trainer, pod
from tidewater.cli.top.scrape import Reading, Recoveries, metrics_ports, reading


def test_what_the_trainer_exports_is_what_top_reads() -> None:
    trainer = Trainer(rank=1)
    trainer.trains(3, loss=0.25, generation=7, world_size=2)
    trainer.recovers("lost", 0.5)
    trainer.recovers("lost", 0.25)
    found = reading(trainer.page, at=12.0)
    assert found == Reading(
        at=12.0,
        steps=3,
        samples=90,
        rank=1,
        generation=7,
        world_size=2,
        step=3,
        epoch=3,
        loss=0.25,
        goodput=found.goodput,
        waited=found.waited,
        recoveries={"lost": Recoveries(2, 0.75)},
    )
    assert found.goodput is not None
    assert found.waits == pytest.approx(0.02)
    assert 0 < found.goodput <= 1


def test_a_worker_without_a_step_shows_no_numbers_although_its_gauges_are_zero() -> None:
    assert reading(Trainer().page, at=1.0) == Reading(at=1.0)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("<html>not found</html>", id="html"),
        pytest.param("tidewater_step twelve\ntidewater_committed_steps_total", id="no-number"),
        pytest.param("python_gc_objects_collected_total 12.0\nstep 3", id="others"),
        pytest.param("tidewater_committed_steps_total NaN", id="nan"),
    ],
)
def test_other_text_is_skipped(text: str) -> None:
    assert reading(text, at=1.0) == Reading(at=1.0)


def test_labels_may_have_every_character_and_samples_a_time() -> None:
    info = 'tidewater_worker_info{job_name="a} \\"b",worker="w"} 1.0'
    text = f"{info}\ntidewater_committed_steps_total 3.0 1395066363000\n"
    assert reading(text, at=1.0).steps == 3


def test_a_loss_that_is_no_number_any_more_is_kept() -> None:
    loss = reading("tidewater_committed_steps_total 1.0\ntidewater_loss NaN", at=1.0).loss
    assert loss is not None
    assert loss != loss


def test_every_process_of_a_worker_has_a_port() -> None:
    several = pod(0)
    ports = [("metrics", PORT), ("metrics-1", PORT + 1), ("http", 80)]
    several["spec"]["containers"][0]["ports"] = [{"name": name, "containerPort": port} for name, port in ports]
    assert metrics_ports(several) == (PORT, PORT + 1)


def test_without_a_port_of_that_name_the_annotation_counts_and_then_the_environment() -> None:
    bare = pod(0)
    bare["spec"]["containers"] = [{"name": "worker"}]
    assert metrics_ports(bare) == ()
    bare["spec"]["containers"][0]["env"] = [{"name": "TIDEWATER_METRICS_PORT", "value": "9000"}]
    assert metrics_ports(bare) == (9000,)
    bare["metadata"]["annotations"] = {"prometheus.io/port": "9100"}
    assert metrics_ports(bare) == (9100,)


def test_a_metrics_port_of_zero_means_no_metrics() -> None:
    off = pod(0)
    off["spec"]["containers"] = [{"name": "worker", "env": [{"name": "TIDEWATER_METRICS_PORT", "value": "0"}]}]
    assert metrics_ports(off) == ()
