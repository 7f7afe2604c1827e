"""A controller may be stopped before any action: the next one goes on, and a failure is counted exactly once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.decide.histories.simulation import Simulation
from tests.controller.decide.world import job
from tidewater.elasticjob.choices import State

BOUNDARIES = range(9)


def started(**spec: object) -> Simulation:
    cluster = Simulation.of([job(3, low=1, high=4, **spec)], {"a": 2, "b": 3})
    cluster.settle()
    return cluster


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_job_starts_whole_wherever_the_controller_is_stopped(boundary: int) -> None:
    cluster = Simulation.of([job(3, low=1)], {"a": 4})
    cluster.reconcile("j", stop_after=boundary)
    cluster.settle()
    assert sorted(cluster.pods["j"]) == ["j-worker-0", "j-worker-1", "j-worker-2"]
    assert cluster.jobs["j"].status.state is State.RUNNING


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_failure_is_counted_once_wherever_the_controller_is_stopped(boundary: int) -> None:
    cluster = started()
    cluster.end("j", cluster.pods["j"]["j-worker-1"], 130)
    cluster.reconcile("j", stop_after=boundary)
    cluster.pass_over(20)
    cluster.reconcile("j", stop_after=boundary)
    cluster.settle()
    assert cluster.jobs["j"].status.restarts == 1
    assert len(cluster.pods["j"]) == 3


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_growing_job_reaches_its_maximum_wherever_the_controller_is_stopped(boundary: int) -> None:
    cluster = Simulation.of([job(2, low=1, high=8, autoscale=True)], {"a": 9})
    for _ in range(6):
        cluster.reconcile("j", stop_after=boundary)
        cluster.schedule()
        cluster.start()
    cluster.settle()
    assert len(cluster.pods["j"]) == 8
    assert cluster.made == 8


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_resize_ends_at_its_size_wherever_the_controller_is_stopped(boundary: int) -> None:
    cluster = started()
    spec = cluster.jobs["j"].spec
    smaller = replace(spec, replica_specs={"Worker": replace(spec.worker, replicas=1)})
    cluster.jobs["j"] = replace(cluster.jobs["j"], spec=smaller, generation=2)
    cluster.reconcile("j", stop_after=boundary)
    cluster.settle()
    assert sorted(cluster.pods["j"]) == ["j-worker-0"]
    assert cluster.jobs["j"].status.settled_replicas == 1
