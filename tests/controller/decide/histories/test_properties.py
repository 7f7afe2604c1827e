"""The promises of the decision, in random states and after random histories.

`promises` says what is checked at every decision: never more than the maximum, no core worker deleted while a surge
worker could go, workers leave cordoned nodes one at a time and not below the minimum, none stays on a node that ends,
nothing done to a finished job but its cleaning, and nothing more to do on the outcome of a decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.controller.decide.histories import promises
from tests.controller.decide.histories.random_worlds import disturb, random_job, random_view, simulate
from tests.controller.decide.histories.simulation import Simulation
from tests.controller.decide.world import NOW
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import NodeView, is_finished, parted
from tidewater.controller.decide.replica_groups import crews
from tidewater.controller.decide.sizes import floor
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob

SEEDS = st.integers(0, 2**32)
EACH = st.sampled_from((1, 2, 3))
"""Pods of a replica."""


def check_state(seed: int, each: int) -> None:
    """Check the decision in a random state, and that on its outcome, with so many pods in each replica."""
    view = random_view(Random(seed), each)
    decision = decide(view, NOW)
    promises.check(view, decision, NOW)
    cluster = simulate(view)
    cluster.carry_out("j", decision)
    if "j" not in cluster.jobs:
        return
    pods = tuple(cluster.pods["j"].values())
    outcome = replace(view, job=cluster.jobs["j"], pods=pods, services=frozenset(cluster.services), nodes=cluster.nodes)
    again = decide(outcome, NOW)
    promises.check(outcome, again, NOW)
    promises.check_again(view, decision, again)


def check_history(config: int, happenings: Iterable[int], each: int) -> None:
    """Let things happen to one job or two, then see that they come to rest in the right state."""
    random = Random(config)
    queue = random.choice((None, None, "q"))
    jobs = [random_job(random, name, queue, each) for name in "ab"[: random.randint(1, 2)]]
    cluster = Simulation.of(jobs, {f"node-{number}": random.randint(1, 4) for number in range(random.randint(1, 4))})
    cluster.fixed = random.random() < 0.5
    for seed in happenings:
        disturb(cluster, Random(seed))
    calm(cluster)


def calm(cluster: Simulation) -> None:
    """Repair the cluster, give it room for everybody, and check where its jobs come to rest."""
    for name, node in list(cluster.nodes.items()):
        if node.lost:
            del cluster.nodes[name], cluster.rooms[name]
        else:
            cluster.nodes[name] = NodeView(name=name, elastic=node.elastic)
    cluster.nodes["new"] = NodeView(name="new")
    cluster.rooms["new"] = 100
    cluster.settle()
    for job in cluster.jobs.values():
        check_rest(cluster, job)


def check_rest(cluster: Simulation, job: ElasticJob) -> None:
    for name, node in job.status.nodes.items():
        assert node.device_failures <= cluster.device_failures[job.name, name], "a failure is counted twice"
    view = parted(cluster.observe(job.name))
    sorted_, strays = crews(view)
    assert not strays
    if is_finished(job.status):
        return
    assert not any(pod.terminating for pod in view.pods)
    if job.spec.suspend:
        assert (view.pods, job.status.state, job.status.settled_replicas) == ((), State.SUSPENDED, 0)
        return
    worker = sorted_[names.WORKER]
    assert not any(pod.absent for pod in worker.live), "a replica lacks a pod"
    for crew in sorted_.values():
        aim = job.status.desired if crew.type == names.WORKER else crew.wanted
        assert crew.size == aim, f"{crew.size} pods of type {crew.type}, and {aim} are aimed for"
        assert len(crew.active) + len(crew.done) + len(crew.permanent) == crew.size
    least = floor(job.spec, worker, worker.wanted)
    assert job.status.desired == (max(least, job.status.desired) if job.spec.autoscale else least)
    if not any(crew.permanent or crew.done for crew in sorted_.values()):
        assert job.status.state is State.RUNNING
        assert job.status.settled_replicas == job.spec.worker.replicas


@settings(max_examples=2500)
@given(SEEDS, EACH)
@example(9467, 1)
@example(93603, 1)
@example(95341, 1)
@example(197681, 1)
@example(213349, 1)
@example(249795, 1)
@example(2244, 1)
def test_every_decision_keeps_the_promises(seed: int, each: int) -> None:
    check_state(seed, each)


@settings(max_examples=250)
@given(SEEDS, st.lists(SEEDS, max_size=30), EACH)
@example(0, [], 1)
def test_every_history_keeps_the_promises_and_comes_to_rest(config: int, happenings: list[int], each: int) -> None:
    check_history(config, happenings, each)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_hundreds_of_thousands_of_states_keep_the_promises(part: int) -> None:
    for seed in range(part * 30_000, (part + 1) * 30_000):
        check_state(seed, 1 + seed % 3)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_histories_come_to_rest(part: int) -> None:
    for seed in range(part * 1_000, (part + 1) * 1_000):
        random = Random(seed)
        happenings = [random.randrange(2**32) for _ in range(random.randint(0, 60))]
        check_history(seed, happenings, 1 + seed % 3)
