"""What is wrong with a cluster is found, and what cannot be known is not called wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.doctor.places import Surroundings
from tests.cli.top.fakes import FakeClock, forbidden
from tidewater.cli.doctor import cluster, operator
from tidewater.cli.doctor.app import results_of
from tidewater.cli.doctor.results import Check, Outcome
from tidewater.contract import labels
from tidewater.elasticjob import crd, names

CONTROLLER = {**labels.component(labels.COMPONENT_CONTROLLER, instance="tidewater-controller")}


def node(name: str, *, ready: bool = True, kind: str = "m5.large", gpus: int | None = None) -> dict[str, Any]:
    allocatable = {} if gpus is None else {cluster.GPU: str(gpus)}
    return {
        "metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": kind}},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}], "allocatable": allocatable},
    }


def deployment(ready: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "tidewater-controller", "namespace": "tidewater-system", "labels": CONTROLLER},
        "spec": {"replicas": 2},
        "status": {"readyReplicas": ready},
    }


def lease(holder: str, version: int) -> dict[str, Any]:
    return {
        "metadata": {"name": operator.LEASE, "namespace": "tidewater-system", "resourceVersion": str(version)},
        "spec": {"holderIdentity": holder},
    }


def test_the_api_server_is_named_with_its_version_and_an_old_one_must_be_upgraded(here: Surroundings) -> None:
    assert cluster.api_server(here.place).text == "Kubernetes v1.34.4 at https://cluster.test"
    here.cluster.paths["/version"] = json.dumps({"gitVersion": "v1.28.9-eks-1"})
    assert cluster.api_server(here.place).outcome is Outcome.FIX


@pytest.mark.parametrize("page", ["<html>Sign in</html>", "", "[]"], ids=["html", "empty", "a-list"])
def test_a_server_that_is_no_api_server_is_named(here: Surroundings, page: str) -> None:
    here.cluster.paths["/version"] = page
    found = cluster.api_server(here.place)
    assert found.outcome is Outcome.FIX
    assert found.text == "https://cluster.test does not answer as a Kubernetes API server does"


def test_rights_to_read_are_needed_and_each_other_one_for_its_commands(here: Surroundings) -> None:
    assert cluster.rights(here.place).outcome is Outcome.FINE
    here.cluster.denied = {"patch elasticjobs/scale"}
    one = cluster.rights(here.place)
    assert (one.outcome, "patch elasticjobs/scale (job scale)" in one.text) == (Outcome.NOTE, True)
    here.cluster.denied = {"list pods"}
    assert cluster.rights(here.place).outcome is Outcome.FIX


@pytest.mark.parametrize(
    ("nodes", "outcome"),
    [
        pytest.param([], Outcome.FIX, id="none"),
        pytest.param([node("a", ready=False)], Outcome.FIX, id="none-ready"),
        pytest.param([node("a"), node("b", ready=False)], Outcome.NOTE, id="one-lost"),
        pytest.param([node("a")], Outcome.FINE, id="ready"),
    ],
)
def test_nodes_must_be_ready(here: Surroundings, nodes: list[dict[str, Any]], outcome: Outcome) -> None:
    here.cluster.objects["nodes"] = nodes
    assert cluster.nodes(here.place).outcome is outcome


@pytest.mark.parametrize(
    ("nodes", "outcome"),
    [
        pytest.param([node("a")], Outcome.SKIPPED, id="no-gpus"),
        pytest.param([node("a", kind="g5.xlarge")], Outcome.FIX, id="no-plug-in"),
        pytest.param([node("a", kind="g5.xlarge", gpus=0)], Outcome.FIX, id="plug-in-sees-none"),
        pytest.param([node("a", kind="g5.xlarge", gpus=1)], Outcome.FINE, id="offered"),
        pytest.param([node("a", kind="unknown", gpus=8)], Outcome.FINE, id="another-cloud"),
        pytest.param([node("a", kind="g4ad.xlarge")], Outcome.SKIPPED, id="amd"),
        pytest.param([node("a", kind="g5.xlarge", ready=False)], Outcome.SKIPPED, id="not-ready"),
    ],
)
def test_nodes_with_gpus_must_offer_them(here: Surroundings, nodes: list[dict[str, Any]], outcome: Outcome) -> None:
    here.cluster.objects["nodes"] = nodes
    assert cluster.gpus(here.place).outcome is outcome


def test_the_efs_driver_is_needed_only_by_volumes_on_efs(here: Surroundings) -> None:
    assert cluster.efs(here.place).outcome is Outcome.SKIPPED
    volume = {"metadata": {"name": "data"}, "spec": {"csi": {"driver": cluster.EFS_DRIVER}}}
    here.cluster.objects["persistentvolumes"] = [volume]
    assert cluster.efs(here.place).outcome is Outcome.FIX
    here.cluster.objects["csidrivers"] = [{"metadata": {"name": cluster.EFS_DRIVER}}]
    here.cluster.objects["csinodes"] = [{"metadata": {"name": "a"}, "spec": {"drivers": None}}]
    assert cluster.efs(here.place).outcome is Outcome.NOTE
    drivers = [{"name": cluster.EFS_DRIVER}]
    here.cluster.objects["csinodes"] = [{"metadata": {"name": "a"}, "spec": {"drivers": drivers}}]
    assert cluster.efs(here.place).outcome is Outcome.FINE


def installed(here: Surroundings) -> dict[str, Any]:
    """Install the CRD as an API server keeps it, and return it."""
    here.cluster.paths[f"/apis/{names.API_VERSION}"] = "{}"
    stored: dict[str, Any] = json.loads(json.dumps(crd.definition()))
    stored["spec"]["conversion"] = {"strategy": "None"}
    here.cluster.objects["customresourcedefinitions"] = [stored]
    return stored


def test_the_crd_must_be_installed(here: Surroundings) -> None:
    missing = operator.definition(here.place)
    assert (missing.outcome, "tidewater install | kubectl apply" in missing.remedy) == (Outcome.FIX, True)
    installed(here)
    assert operator.definition(here.place).outcome is Outcome.FINE


def test_the_crd_of_another_version_is_found_by_the_field_that_differs(here: Surroundings) -> None:
    schema = installed(here)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = schema["properties"]["spec"]["properties"]
    fields["rdzvEndpoint"]["maxLength"] = 7
    assert "properties.rdzvEndpoint.maxLength" in operator.definition(here.place).text
    fields = installed(here)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["later"] = {"type": "string"}
    assert "properties.later" in operator.definition(here.place).text
    del fields["later"], fields["minReplicas"]
    assert operator.definition(here.place).outcome is Outcome.FIX


def test_without_the_right_to_read_the_crd_it_is_enough_that_jobs_are_served(here: Surroundings) -> None:
    installed(here)
    here.cluster.refused["customresourcedefinitions"] = forbidden("customresourcedefinitions")
    assert operator.definition(here.place).outcome is Outcome.FINE


@pytest.mark.parametrize(
    ("deployments", "outcome"),
    [
        pytest.param([], Outcome.FIX, id="not-installed"),
        pytest.param([deployment(0)], Outcome.FIX, id="none-ready"),
        pytest.param([deployment(1)], Outcome.NOTE, id="one-of-two"),
        pytest.param([deployment(2)], Outcome.FINE, id="ready"),
    ],
)
def test_the_controller_must_run(here: Surroundings, deployments: list[dict[str, Any]], outcome: Outcome) -> None:
    here.cluster.objects["deployments"] = deployments
    assert operator.controller(here.place).outcome is outcome


@pytest.mark.parametrize("readable", ["training", "tidewater-system"])
def test_without_rights_in_all_namespaces_the_controller_is_found_where_the_user_may_look(
    here: Surroundings, readable: str
) -> None:
    found = deployment(2)
    found["metadata"]["namespace"] = readable
    here.cluster.objects |= {"deployments": [found], "leases": [lease("controller-a", 1)]}
    here.cluster.refused["*/deployments"] = forbidden("deployments")
    other = "training" if readable == "tidewater-system" else "tidewater-system"
    here.cluster.refused[f"{other}/deployments"] = forbidden("deployments")
    result = operator.controller(here.place)
    assert (result.outcome, f"{readable}/tidewater-controller" in result.text) == (Outcome.FINE, True)
    assert f"Lease {readable}/" in operator.leader(here.place).text


@pytest.mark.parametrize(
    "refused",
    [["deployments"], ["*/deployments", "tidewater-system/deployments"], ["*/deployments"]],
    ids=["nowhere", "only-the-own-namespace", "both-namespaces-have-none"],
)
def test_a_controller_that_the_user_may_not_see_is_not_called_missing(here: Surroundings, refused: list[str]) -> None:
    here.cluster.objects["deployments"] = []
    here.cluster.refused |= {each: forbidden("deployments") for each in refused}
    checks = [
        Check("ElasticJob", "controller", operator.controller),
        Check("ElasticJob", "leader", operator.leader, needs="controller"),
    ]
    found = {check.name: result for check, result in results_of(checks, here.place)}
    assert {result.outcome for result in found.values()} == {Outcome.UNCHECKED}
    assert found["controller"].text == "could not be checked: deployments is forbidden"
    assert found["leader"].text == "not checked, see controller"


def test_a_leader_is_known_by_its_renewals_and_not_by_its_clock(here: Surroundings) -> None:
    here.cluster.objects |= {"deployments": [deployment(2)], "leases": [lease("controller-a", 1)]}
    stale = operator.leader(here.place)
    assert (stale.outcome, "is not renewed" in stale.text) == (Outcome.FIX, True)

    def renewals() -> Any:
        yield
        here.cluster.objects["leases"] = [lease("controller-b", 2)]
        yield

    here.clock = FakeClock(renewals())
    assert operator.leader(here.place).text == "controller-b leads"


def test_without_a_lease_nobody_leads(here: Surroundings) -> None:
    here.cluster.objects["deployments"] = [deployment(2)]
    assert operator.leader(here.place).outcome is Outcome.FIX
