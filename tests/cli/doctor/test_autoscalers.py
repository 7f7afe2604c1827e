"""An autoscaler that sets sizes outside of its job's bounds is found before the job doesn't grow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.doctor.places import Surroundings
from tests.cli.top.objects import job
from tidewater.cli.doctor.autoscalers import autoscalers
from tidewater.cli.doctor.results import Outcome


def autoscaler(least: int | None, most: int, kind: str = "ElasticJob", name: str = "digits") -> dict[str, Any]:
    target = {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": kind, "name": name}
    bounds = {"maxReplicas": most, **({"minReplicas": least} if least else {})}
    return {"metadata": {"name": "hpa", "namespace": "training"}, "spec": {"scaleTargetRef": target, **bounds}}


def bounded(low: int, high: int, **status: Any) -> dict[str, Any]:
    made = job(**status)
    made["spec"] |= {"minReplicas": low, "maxReplicas": high}
    return made


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        pytest.param(autoscaler(2, 4), Outcome.FINE, id="within"),
        pytest.param(autoscaler(5, 9), Outcome.FIX, id="minimum-above-maximum"),
        pytest.param(autoscaler(None, 1), Outcome.FIX, id="maximum-below-minimum"),
        pytest.param(autoscaler(2, 9), Outcome.NOTE, id="maximum-too-high"),
        pytest.param(autoscaler(None, 4), Outcome.NOTE, id="default-minimum-too-low"),
        pytest.param(autoscaler(9, 9, kind="Deployment"), Outcome.SKIPPED, id="of-something-else"),
        pytest.param(autoscaler(9, 9, name="gone"), Outcome.FINE, id="of-no-job"),
    ],
)
def test_bounds_that_differ_are_found(here: Surroundings, found: dict[str, Any], outcome: Outcome) -> None:
    here.cluster.objects |= {"elasticjobs": [bounded(2, 4)], "horizontalpodautoscalers": [found]}
    assert autoscalers(here.place).outcome is outcome


def test_a_finding_has_both_bounds_and_the_command_that_corrects_them(here: Surroundings) -> None:
    here.cluster.objects |= {"elasticjobs": [bounded(2, 4)], "horizontalpodautoscalers": [autoscaler(5, 9)]}
    found = autoscalers(here.place)
    assert "HorizontalPodAutoscaler training/hpa may set 5 to 9 workers, and job digits has 2 to 4" in found.text
    assert """-p '{"spec": {"minReplicas": 2, "maxReplicas": 4}}'`""" in found.remedy


def test_a_job_that_has_ended_is_not_resized(here: Surroundings) -> None:
    ended = bounded(2, 4, state="Succeeded")
    here.cluster.objects |= {"elasticjobs": [ended], "horizontalpodautoscalers": [autoscaler(5, 9)]}
    assert autoscalers(here.place).outcome is Outcome.FINE
