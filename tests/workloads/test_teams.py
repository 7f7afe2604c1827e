"""The namespace of a team: what is in it, how much it may use, and that no pod reaches another team's."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from tests import graph
from tests.infra.policies.test_teams import TEAMS
from tests.infra.preflight.world import region, stack
from tests.security.reach import Host, Network, Pod
from tidewater.contract import labels
from tidewater.contract.controller_program import Quota
from tidewater.controller.main import flags_of
from tidewater.elasticjob import names
from workloads.etcd import manifests as etcd
from workloads.namespace import PriorityClasses
from workloads.teams import quota_manifests

QUOTA = "kubernetes:core/v1:ResourceQuota"
BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
SPACES = ("training", "vision", "speech")
NAMESPACES = {each: {"kubernetes.io/metadata.name": each} for each in (*SPACES, "kube-system", "default")}
WORKER = {names.LABEL_GROUP_NAME: names.GROUP, **labels.worker_pods("job")}


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    """Return the graph of the production example with two teams."""
    return graph.production(**TEAMS)


def within(made: graph.Graph, type_: str, namespace: str) -> dict[str, Any]:
    """Return the inputs of the objects of a kind in a namespace, by name."""
    found = (each.inputs for each in made.all(type_))
    return {each["metadata"]["name"]: each for each in found if each["metadata"].get("namespace") == namespace}


def test_the_objects_of_two_teams_are_different_resources(made: graph.Graph) -> None:
    urns = [each.urn for each in made.resources]
    assert len(urns) == len(set(urns))


def test_a_teams_people_may_edit_its_namespace_and_no_other(made: graph.Graph) -> None:
    given = {
        (each.inputs["metadata"]["namespace"], each.inputs["roleRef"]["name"], subject["name"])
        for each in made.all(BINDING)
        for subject in each.inputs["subjects"]
        if subject["kind"] == "Group"
    }
    role = "tidewater-people"
    assert given == {("vision", role, "tidewater:vision"), ("speech", role, "tidewater:speech")}
    of_cluster = made.all("kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding")
    assert not [each for each in of_cluster if "tidewater:" in str(each.inputs["subjects"])]


@pytest.mark.parametrize(("team", "least", "most"), [("vision", 1, 2), ("speech", 0, 4)])
def test_a_quota_is_enough_for_the_teams_workers_and_for_no_more_gpus(
    made: graph.Graph, team: str, least: int, most: int
) -> None:
    stack = graph.parsed(**{**graph.stack_config("Pulumi.aws.yaml.example"), **TEAMS})
    quotas = {name: each["spec"] for name, each in within(made, QUOTA, team).items()}
    assert quotas["team"]["hard"]["requests.nvidia.com/gpu"] == str(most * stack.workers.gpus)
    doors = ("services.loadbalancers", "services.nodeports", "count/ingresses.networking.k8s.io")
    assert {quotas["team"]["hard"][each] for each in doors} == {"0"}
    share = within(made, "kubernetes:core/v1:LimitRange", team)["workers"]["spec"]["limits"][0]["defaultRequest"]
    for key, unit in (("cpu", "m"), ("memory", "Mi")):
        hard, one = (int(text.removesuffix(unit)) for text in (quotas["team"]["hard"][f"requests.{key}"], share[key]))
        assert most * one < hard
    assert quotas["core-workers"]["hard"] == {"pods": str(least)}


def test_a_class_that_the_cluster_gives_to_pods_that_name_none_is_no_class_of_others() -> None:
    team, wanted = settings.Team("vision", (), 1, 2), stack()
    workers = wanted.with_hardware(region(wanted).types).workers

    def allowed(default: str) -> list[str]:
        quotas = {
            each["metadata"]["name"]: each["spec"]
            for each in quota_manifests(team, workers, 3, PriorityClasses("training"), default)
        }
        _, others = quotas["other-classes"]["scopeSelector"]["matchExpressions"]
        return list(others["values"])

    own = ["training-core-workers", "training-surge-workers", "training-etcd"]
    assert allowed("") == own
    assert allowed("usual") == [*own, "usual"]


@pytest.mark.parametrize("team", ["vision", "speech"])
def test_a_team_has_an_etcd_and_a_volume_of_its_own(made: graph.Graph, team: str) -> None:
    assert etcd.NAME in within(made, "kubernetes:apps/v1:StatefulSet", team)
    (volume,) = [
        each.inputs["spec"]
        for each in made.all("kubernetes:core/v1:PersistentVolume")
        if each.inputs["spec"]["claimRef"]["namespace"] == team
    ]
    assert volume["csi"]["volumeHandle"].endswith(f"::tidewater-production-team-{team}-id")
    assert volume["mountOptions"] == ["iam"]


def test_a_team_that_is_removed_goes_with_its_peoples_jobs(made: graph.Graph) -> None:
    """Their pods mount the claim. Only with the namespace they go; then Kubernetes deletes the volume."""
    (space,) = [each for each in made.all("kubernetes:core/v1:Namespace") if each.name == "namespace-vision"]
    (claim,) = [
        each
        for each in made.all("kubernetes:core/v1:PersistentVolumeClaim")
        if each.inputs["metadata"]["namespace"] == "vision"
    ]
    assert claim.deleted_with == space.urn
    volume = made.one("kubernetes:core/v1:PersistentVolume", "vision")
    assert made.needs(space, volume)
    assert volume.deleted_with == made.one("kubernetes:core/v1:PersistentVolume", "training").deleted_with
    identity = made.one("aws:eks/podIdentityAssociation:PodIdentityAssociation", "-vision-")
    assert identity.deleted_with == "", "AWS has it, not the namespace"


@pytest.mark.parametrize("source", SPACES)
@pytest.mark.parametrize("destination", SPACES)
def test_pods_reach_those_of_their_own_team_only(made: graph.Graph, source: str, destination: str) -> None:
    policies = [each.inputs for each in made.all("kubernetes:networking.k8s.io/v1:NetworkPolicy")]
    network, own = Network(policies, NAMESPACES), source == destination
    worker = Pod(source, WORKER)
    assert network.lets(worker, Pod(destination, WORKER), 40123) is own
    assert network.lets(worker, Pod(destination, etcd.LABELS), etcd.CLIENT_PORT) is own
    assert not network.lets(Pod("default", WORKER), Pod(destination, WORKER), 40123)
    assert not network.lets(worker, Host("10.0.1.10"), 2049), "the file system's port"
    assert network.lets(worker, Host("52.218.0.1"), 443)


def test_pods_are_without_privileges_in_every_namespace(made: graph.Graph) -> None:
    enforced = {
        each.inputs["metadata"]["name"]: each.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in made.all("kubernetes:core/v1:Namespace")
    }
    assert {enforced[each] for each in SPACES} == {"restricted"}


def test_the_controller_serves_the_teams_and_the_stack_and_has_no_right_on_jobs_elsewhere(made: graph.Graph) -> None:
    (container,) = made.one("kubernetes:apps/v1:Deployment", "controller").inputs["spec"]["template"]["spec"][
        "containers"
    ]
    assert "--namespaces=training,vision,speech" in container["args"]
    jobs = [each.inputs for each in made.all(ROLE) if names.PLURAL in str(each.inputs["rules"])]
    assert {each["metadata"]["namespace"] for each in jobs} == {*SPACES}
    (everywhere,) = [
        each.inputs["rules"]
        for each in made.all("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole")
        if each.inputs["metadata"]["name"] == "tidewater-controller"
    ]
    assert not [rule for rule in everywhere if {"pods", names.PLURAL} & {*rule["resources"]}]


def test_the_controller_gets_the_quotas_of_teams_and_what_counts_as_a_worker() -> None:
    teams = [{**each, "nominalWorkers": number} for each, number in zip(TEAMS["teams"], (2, 3), strict=True)]
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), **TEAMS, "teams": teams}
    made = graph.production(**{**TEAMS, "teams": teams})
    (container,) = made.one("kubernetes:apps/v1:Deployment", "controller").inputs["spec"]["template"]["spec"][
        "containers"
    ]
    flags = flags_of(container["args"], "x").options
    assert flags.quotas == {"vision": Quota(2, 2), "speech": Quota(3, 4)}
    assert flags.worker_size["nvidia.com/gpu"] == str(graph.parsed(**config).workers.gpus)
    share = within(made, "kubernetes:core/v1:LimitRange", "vision")["workers"]["spec"]["limits"][0]["defaultRequest"]
    assert flags.worker_size["cpu"] == share["cpu"]
    assert int(flags.worker_size["memory"][:-2]) // 2 == int(share["memory"][:-2])


def test_without_nominal_workers_it_gets_no_quotas(made: graph.Graph) -> None:
    (container,) = made.one("kubernetes:apps/v1:Deployment", "controller").inputs["spec"]["template"]["spec"][
        "containers"
    ]
    assert flags_of(container["args"], "x").options.quotas == {}


def test_without_teams_it_serves_every_namespace() -> None:
    made = graph.production()
    (container,) = made.one("kubernetes:apps/v1:Deployment", "controller").inputs["spec"]["template"]["spec"][
        "containers"
    ]
    assert "--namespaces" not in str(container.get("args"))
    assert not made.all(QUOTA)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((etcd.NAME, "StatefulSet"), ("default-deny", "NetworkPolicy")),
        ((etcd.NAME, "StatefulSet"), ("data", "PersistentVolumeClaim")),
        (("people", "RoleBinding"), ("vision", "Namespace")),
    ],
)
def test_nothing_of_a_team_comes_before_what_it_needs(
    made: graph.Graph, first: tuple[str, str], then: tuple[str, str]
) -> None:
    def one(name: str, kind: str) -> graph.Registered:
        (found,) = [
            each
            for each in made.resources
            if each.type.endswith(f":{kind}") and "tidewater:teams:vision$" in each.urn and each.name.endswith(name)
        ]
        return found

    assert made.needs(one(*first), one(*then))


def test_a_worker_of_the_stacks_own_size_fits_into_the_smallest_quota() -> None:
    deployed = graph.deploy(
        {**graph.stack_config("Pulumi.local.yaml"), "fileAccess": "iam", "teams": [{"name": "a", "maxWorkers": 1}]}
    )
    hard = within(deployed, QUOTA, "a")["team"]["spec"]["hard"]
    assert "requests.nvidia.com/gpu" not in hard
    job = deployed.one(f"kubernetes:{names.API_VERSION}:{names.KIND}").inputs["spec"]["replicaSpecs"]["Worker"]
    asked = job["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert int(asked["cpu"][:-1]) <= int(hard["requests.cpu"][:-1])
    assert int(asked["memory"][:-2]) <= int(hard["requests.memory"][:-2])
