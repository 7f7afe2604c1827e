"""Which templates leave it clear which container trains."""

from __future__ import annotations

import pytest

from tests.elasticjob.manifests import container
from tidewater.elasticjob import pod_template
from tidewater.elasticjob.errors import InvalidJob


@pytest.mark.parametrize(
    "found",
    [["elasticjob-worker"], ["any"], ["proxy", "elasticjob-worker"]],
    ids=["by-its-name", "the-only-one", "with-a-sidecar"],
)
def test_a_clear_template_is_accepted(found: list[str]) -> None:
    pod_template.check({"spec": {"containers": [container(name) for name in found]}}, "template", one_trains=True)


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({}, "template.spec.containers"),
        ({"spec": {"containers": []}}, "template.spec.containers"),
        ({"spec": {"containers": "main"}}, "template.spec.containers"),
        ({"spec": {"containers": [container("a"), {}]}}, "template.spec.containers[1].name"),
        ({"spec": {"containers": [container("a"), container("b")]}}, "template.spec.containers"),
        ({"spec": {"containers": [container("elasticjob-worker")] * 2}}, "template.spec.containers"),
    ],
    ids=["empty", "no-containers", "no-list", "nameless", "none-trains", "two-train"],
)
def test_any_other_is_refused_by_the_name_of_its_field(template: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        pod_template.check(template, "template", one_trains=True)
    assert caught.value.path == path
