"""What the cluster says before anything is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.job import Submission, elastic_job
from tidewater_torchx.submit.options import Options
from tidewater_torchx.submit.preflight import check, facts_of
from torchx.specs import AppDef, VolumeMount

from packages.torchx.tests.doubles import FACTS, KubernetesInMemory, app, role
from tidewater.contract.stack import CONFIG_MAP
from tidewater.elasticjob import names
from tidewater.kube.errors import Unreachable, error_of
from tidewater.kube.kinds import CLAIMS, CONFIG_MAPS, PRIORITY_CLASSES, SERVICE_ACCOUNTS

FORBIDDEN = error_of(403, "Forbidden", 'pods is forbidden: User "me" cannot create resource "pods"')


def checked(cluster: KubernetesInMemory, given: AppDef, **options: Any) -> None:
    found = Options(**options)
    manifest = elastic_job(given, Submission(unique="kx3p", namespace="training", options=found))
    check(cluster, manifest, given, found)


def test_the_facts_are_those_of_the_stack_in_the_namespace(cluster: KubernetesInMemory) -> None:
    assert facts_of(cluster, "training") is None
    cluster.put_facts()
    assert facts_of(cluster, "training") == FACTS
    assert facts_of(cluster, "other") is None


def test_facts_that_may_not_be_read_are_none(cluster: KubernetesInMemory) -> None:
    cluster.failures["get", "ConfigMap"] = FORBIDDEN
    assert facts_of(cluster, "training") is None


def test_a_stack_of_another_version_is_named(cluster: KubernetesInMemory) -> None:
    cluster.put(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP}, "data": {"bucket": "b"}})
    with pytest.raises(Refused, match="ConfigMap tidewater in namespace training says nothing of 'serviceAccount'"):
        facts_of(cluster, "training")


def test_a_job_that_can_run_is_only_tried(cluster: KubernetesInMemory) -> None:
    checked(cluster, app(role(), role("ps")))
    assert [each["kind"] for each in cluster.created()] == [names.KIND, "Pod", "Pod"]
    assert [each["metadata"]["name"] for each in cluster.created()[1:]] == ["app-kx3p-worker-0", "app-kx3p-ps-0"]


def test_what_exists_is_accepted(cluster: KubernetesInMemory) -> None:
    cluster.put(CLAIMS, {"metadata": {"name": "claim"}})
    cluster.put(SERVICE_ACCOUNTS, {"metadata": {"name": "sa"}})
    cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}})
    checked(cluster, app(role(mounts=[VolumeMount("claim", "/d")])), service_account="sa", priority_class="high")


def test_what_may_not_be_read_is_no_mistake(cluster: KubernetesInMemory) -> None:
    cluster.failures |= {("get", kind): FORBIDDEN for kind in ("PersistentVolumeClaim", "ServiceAccount")}
    checked(cluster, app(role(mounts=[VolumeMount("claim", "/d")])), service_account="sa")


def test_a_job_that_the_api_server_refuses_is_refused_with_its_words(cluster: KubernetesInMemory) -> None:
    cluster.failures["create", names.KIND] = error_of(422, "Invalid", "spec.x: Invalid value")
    with pytest.raises(Refused, match=r"Invalid job spec: spec\.x: Invalid value"):
        checked(cluster, app())


@pytest.mark.parametrize("told", [FORBIDDEN.message, 'pods "p" is forbidden: exceeded quota: team, requested: cpu=2'])
def test_what_is_no_mistake_of_the_application_is_accepted(cluster: KubernetesInMemory, told: str) -> None:
    cluster.refused_pods["img:1"] = told
    checked(cluster, app())


@pytest.mark.parametrize(
    "ask", [lambda cluster: facts_of(cluster, "training"), lambda cluster: checked(cluster, app())]
)
def test_a_cluster_that_does_not_answer_is_an_error(
    cluster: KubernetesInMemory, ask: Callable[[KubernetesInMemory], object]
) -> None:
    cluster.failures |= {
        (verb, kind): Unreachable("gone") for verb in ("get", "create") for kind in ("ConfigMap", names.KIND)
    }
    with pytest.raises(Unreachable):
        ask(cluster)
