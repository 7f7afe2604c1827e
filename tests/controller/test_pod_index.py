"""The pods of all jobs, by job and by node."""

from __future__ import annotations

from dataclasses import replace

from tests.controller.decide.world import pod
from tidewater.controller.pod_index import PodIndex


def test_a_node_leads_to_the_jobs_with_a_pod_there_and_to_no_other() -> None:
    index = PodIndex()
    first, second = replace(pod(0), node="a"), replace(pod(1), node="a")
    index.put("one", first)
    index.put("one", second)
    index.put("two", replace(pod(0), node="b"))
    assert index.jobs_on("a") == ["one"]
    assert index.jobs_on("b") == ["two"]
    index.drop("one", first)
    assert index.jobs_on("a") == ["one"], "its other pod is still there"
    index.put("one", replace(second, node="b"))
    assert (index.jobs_on("a"), index.jobs_on("b")) == ([], ["two", "one"])
    index.drop("one", second)
    index.drop("one", second)
    assert index.jobs_on("b") == ["two"]
    assert index.by_job.keys() == {"two"}
    assert list(index.of("one")) == []
