"""All ways to train take turns, and then those that need a cluster."""

from __future__ import annotations

from benchmarks.elasticdl.__main__ import ElasticDL
from benchmarks.elasticdl.plan import CLUSTER_SECONDS, MEASURES, REPLACE, ROOMS, blocks
from benchmarks.elasticdl.systems import REPLACEMENT, SHARING, SYSTEMS
from benchmarks.harness.plan import wanted

NAMES = [system.name for system in SYSTEMS[:3]]


def test_two_jobs_take_turns_after_everything_that_would_wait_for_their_cluster() -> None:
    processes, cluster = blocks(NAMES, list(MEASURES), 5)
    rates = [(measure, name) for measure in ("computing", "paced") for name in NAMES]
    assert [(series.label, series.system) for series in processes] == [*rates, (REPLACE, REPLACEMENT.name)]
    assert [(series.label, series.system) for series in cluster] == [(ROOMS, system.name) for system in SHARING]
    assert {series.runs for series in (*processes, *cluster)} == {5}


def test_the_time_of_the_cluster_counts_once_if_it_is_needed() -> None:
    turns = {measure: wanted(blocks(NAMES, [measure], 2), lambda *key: 0) for measure in MEASURES}
    assert {measure: ElasticDL().setup_seconds(each) for measure, each in turns.items()} == {
        **dict.fromkeys(MEASURES, 0.0),
        ROOMS: CLUSTER_SECONDS,
    }
