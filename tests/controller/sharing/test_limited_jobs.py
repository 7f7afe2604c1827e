"""A job that the quotas of teams allow fewer workers than its spec asks for, or than it could grow to."""

from __future__ import annotations

import pytest

from tests.controller.decide.world import NOW, after, created, deleted, job, nodes, running, view
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.replica_groups import crews
from tidewater.controller.decide.sizes import allowed, floor
from tidewater.controller.sharing.shares import Share
from tidewater.elasticjob.status import Status


@pytest.mark.parametrize("spec", [{}, {"sizes": (8, 2, 4)}, {"sizes": (1, 20)}, {"size_step": 3}])
def test_the_allowed_sizes_are_those_that_are_used(spec: dict[str, object]) -> None:
    made = job(8, low=1, high=8, **spec)
    worker = crews(view(made))[0]["Worker"]
    for high in range(1, 9):
        assert allowed(made.spec, 1, high) == sorted({floor(made.spec, worker, size) for size in range(1, high + 1)})


def test_a_share_below_the_size_asked_for_is_kept_and_does_not_count_as_reached() -> None:
    few = decide(view(job(4, low=1, high=4), running(0, 1, 2, 3), share=Share(2, "may have 2 of 4 workers")), NOW)
    assert (deleted(few), few.status.desired, few.status.settled_replicas) == (["worker-3", "worker-2"], 2, None)
    assert few.status.waiting == "QuotaExceeded"


def test_a_job_with_fewer_workers_than_it_wants_leaves_a_cordoned_node_all_the_same() -> None:
    limited = {"share": Share(2, "may have 2 of 4 workers"), "nodes": nodes(sound=["node-0"], cordoned=["node-1"])}
    made = after(job(4, low=1, high=4), *running(0, 1), share=limited["share"])
    assert deleted(decide(view(made, running(0, 1), **limited), NOW)) == ["worker-1"]


def test_a_job_that_grows_by_itself_does_not_grow_above_its_share() -> None:
    whole = Status(desired=2, settled_replicas=2, observed_generation=1)
    grower = job(2, low=1, high=8, autoscale=True, status=whole)
    assert created(decide(view(grower, running(0, 1), share=Share(3)), NOW)) == [2]
    assert created(decide(view(grower, running(0, 1), share=Share(2)), NOW)) == []
