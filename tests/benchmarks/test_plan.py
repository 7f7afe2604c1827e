"""The comparison with torchrun and torchft measures each system where a measure says something."""

from __future__ import annotations

from benchmarks.elastic import faults, plan, results
from benchmarks.elastic.__main__ import Elastic

TWO = ["tidewater", "torchft"]


def test_the_faults_of_one_model_size_take_turns_by_system() -> None:
    small, large, goodput = plan.blocks(["kill", "term", "kill-large", "goodput"], TWO, 2, trace_seconds=240.0)
    assert [(series.system, series.label) for series in small] == [
        ("tidewater", "kill"),
        ("tidewater", "term"),
        ("torchft", "kill"),
        ("torchft", "term"),
    ]
    assert [series.counted for series in large] == [f"large model, {faults.KILL.headline}"] * 2
    assert [series.seconds for series in goodput] == [300.0, 300.0]


def test_systems_for_which_a_measure_says_nothing_are_left_out() -> None:
    found = [series for block in plan.blocks(plan.MEASURES, ["torchrun", "torchft"], 5) for series in block]
    assert [(series.systems, series.runs) for series in found if series.label == "checkpoint"] == [(("torchrun",), 1)]
    assert [series.system for series in found if series.label == "step"] == ["torchft"]
    assert not [series for series in found if series.label == "transfer"]


def test_every_measure_has_a_place_in_the_table() -> None:
    assert {plan.headline(name) for name in plan.MEASURES} <= set(results.MEASURES)
    assert set(results.CAPS) <= set(results.MEASURES)
    assert faults.unit("SIGTERM: steps lost") == "steps"


def test_the_records_name_the_compared_versions() -> None:
    assert set(Elastic().versions()) == {"torch", "torchft", "transformers"}
