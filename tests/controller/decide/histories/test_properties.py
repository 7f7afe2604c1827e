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


def check_state(seed: int) -> None:
    """Check the decision in a random state, and that on its outcome."""
    view = random_view(Random(seed))
    decision = decide(view, NOW)
    promises.check(view, decision, NOW)
    cluster = simulate(view)
    cluster.carry_out("j", decision)
    if "j" not in cluster.jobs:
        return
    pods = tuple(cluster.pods["j"].values())
    outcome = replace(view, job=cluster.jobs["j"], pods=pods, services=frozenset(cluster.services))
    again = decide(outcome, NOW)
    promises.check(outcome, again, NOW)
    promises.check_again(view, decision, again)


def check_history(config: int, happenings: Iterable[int]) -> None:
    """Let things happen to one job or two, then see that they come to rest in the right state."""
    random = Random(config)
    queue = random.choice((None, None, "q"))
    jobs = [random_job(random, name, queue) for name in "ab"[: random.randint(1, 2)]]
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
    for crew in sorted_.values():
        aim = job.status.desired if crew.type == names.WORKER else crew.wanted
        assert crew.size == aim, f"{crew.size} pods of type {crew.type}, and {aim} are aimed for"
        assert len(crew.active) + len(crew.done) + len(crew.permanent) == crew.size
    least = floor(job.spec, worker, worker.wanted)
    assert job.status.desired == (max(least, job.status.desired) if job.spec.autoscale else least)
    if not any(crew.permanent or crew.done for crew in sorted_.values()):
        assert job.status.state is State.RUNNING
        assert job.status.settled_replicas == job.spec.worker.replicas


@settings(max_examples=1500)
@given(SEEDS)
@example(9467)
@example(93603)
@example(95341)
@example(197681)
@example(213349)
@example(249795)
def test_every_decision_keeps_the_promises(seed: int) -> None:
    check_state(seed)


@settings(max_examples=150)
@given(SEEDS, st.lists(SEEDS, max_size=30))
@example(0, [])
def test_every_history_keeps_the_promises_and_comes_to_rest(config: int, happenings: list[int]) -> None:
    check_history(config, happenings)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_hundreds_of_thousands_of_states_keep_the_promises(part: int) -> None:
    for seed in range(part * 30_000, (part + 1) * 30_000):
        check_state(seed)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_histories_come_to_rest(part: int) -> None:
    for seed in range(part * 1_000, (part + 1) * 1_000):
        random = Random(seed)
        check_history(seed, [random.randrange(2**32) for _ in range(random.randint(0, 60))])
