"""On a cluster that was there before, the stack makes nodes, roles, storage and workloads, and nothing of that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

import settings
from infra.preflight import place
from infra.preflight.cluster import Look, Objects
from settings import prices
from tests import graph
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.vpc import existing_vpc

NAME = existing_cluster.NAME
CONFIG = {**graph.defaults(), **existing_cluster.CONFIG}


@pytest.fixture(scope="module")
def deployed() -> graph.Graph:
    """The whole program on the cluster."""
    return graph.run(graph.program, CONFIG, ask=existing_cluster.ask)


def test_nothing_of_the_cluster_is_made(deployed: graph.Graph) -> None:
    assert not [each.name for each in deployed.resources if each.type.startswith("eks:")]
    kinds = {each.type for each in deployed.resources if each.type.startswith("aws:eks/")}
    own = {"nodeGroup:NodeGroup", "accessEntry:AccessEntry", "podIdentityAssociation:PodIdentityAssociation"}
    assert kinds == {f"aws:eks/{each}" for each in own}
    assert not deployed.all("aws:cloudwatch/logGroup:LogGroup")
    assert "logs." not in deployed.one("aws:kms/key:Key").inputs["policy"]
    roles = {each.name for each in deployed.all("aws:iam/role:Role")}
    assert roles == {f"tidewater-local-{label}" for label in ("node", "trainer", "surge-node", "karpenter")}


def test_all_that_is_on_the_cluster_names_it(deployed: graph.Graph) -> None:
    named = [each for each in deployed.resources if "clusterName" in each.inputs]
    assert len(named) == 6
    assert {each.inputs["clusterName"] for each in named} == {NAME}
    trusts = [each.inputs["assumeRolePolicy"] for each in deployed.all("aws:iam/role:Role")]
    pods = [json.loads(each)["Statement"][0]["Condition"]["StringEquals"] for each in trusts if "pods.eks" in each]
    assert {each["aws:RequestTag/eks-cluster-arn"] for each in pods} == {existing_cluster.CLUSTER["arn"]}
    assert f"cluster/{NAME}" in deployed.one("aws:iam/rolePolicy:RolePolicy", "karpenter").inputs["policy"]
    scraper = deployed.one("aws:amp/scraper:Scraper").inputs["source"]["eks"]
    assert scraper["clusterArn"] == existing_cluster.CLUSTER["arn"]
    assert deployed.outputs["clusterName"] == NAME


def test_nodes_and_files_are_in_the_group_of_the_cluster(deployed: graph.Graph) -> None:
    rule = deployed.one("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule").inputs
    assert rule["referencedSecurityGroupId"] == existing_cluster.GROUP
    node_class = deployed.one("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass").inputs["spec"]
    assert node_class["securityGroupSelectorTerms"] == [{"id": existing_cluster.GROUP}]


def test_the_nodes_have_an_entry_that_goes_after_them_and_with_the_stack(deployed: graph.Graph) -> None:
    entry = deployed.one("aws:eks/accessEntry:AccessEntry", "local-node")
    role = deployed.one("aws:iam/role:Role", "local-node")
    assert (entry.inputs["principalArn"], entry.inputs["type"]) == (role.outputs["arn"], "EC2_LINUX")
    assert all(deployed.needs(group, entry) for group in deployed.all("aws:eks/nodeGroup:NodeGroup"))


def test_the_kubeconfig_logs_in_to_the_cluster_by_aws() -> None:
    made = graph.run(graph.program, {**CONFIG, "profile": "research"}, ask=existing_cluster.ask)
    found = json.loads(made.outputs["kubeconfig"])
    assert found["clusters"][0]["cluster"] == {
        "server": existing_cluster.ENDPOINT,
        "certificate-authority-data": "c2VjcmV0",
    }
    user = found["users"][0]["user"]["exec"]
    expected = f"--region us-west-2 eks get-token --cluster-name {NAME} --output json --profile research"
    assert (user["command"], " ".join(user["args"])) == ("aws", expected)
    provider = made.one("pulumi:providers:kubernetes").inputs
    assert provider["kubeconfig"]["value"] == made.outputs["kubeconfig"], "the state would show it"


def test_objects_of_others_are_not_taken_over_and_a_destroy_leaves_none_of_the_stacks(deployed: graph.Graph) -> None:
    provider = deployed.one("pulumi:providers:kubernetes").inputs
    assert str(provider["upsertExistingObjects"]).lower() == "false"
    kept = {each.name: each.deleted_with for each in deployed.resources if each.deleted_with}
    (space,) = [each for each in deployed.all("kubernetes:core/v1:Namespace") if each.name == "namespace-training"]
    assert kept == {"persistentvolumeclaim-data": space.urn}, "with what is in the namespace"
    assert deployed.needs(space, deployed.one("kubernetes:core/v1:PersistentVolume")), "deleted after the namespace"
    own = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    assert str(own.one("pulumi:providers:kubernetes").inputs["upsertExistingObjects"]).lower() == "true"
    assert [each.name for each in own.resources if each.deleted_with]


def test_the_names_that_are_looked_for_are_those_that_the_stack_makes_on_the_cluster() -> None:
    config = {**CONFIG, "monitoring": "prometheus"}
    made = graph.run(graph.program, config, ask=existing_cluster.ask)
    kinds = ("kubernetes:core/v1:Namespace", "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition")
    registered = {
        (each.type.rpartition(":")[2], each.inputs["metadata"]["name"]) for kind in kinds for each in made.all(kind)
    }
    stack = settings.parse(config, stack="local")
    assert registered == {*stack.names_on_cluster, ("Namespace", stack.training.namespace)}


def with_nodes_of(stack: str, name: str) -> graph.Ask:
    """Answer for a cluster with a node group that has the tags of a stack, in addition to its owner's."""
    group = {
        "nodeRoleArn": f"arn:aws:iam::{graph.ACCOUNT}:role/ml/tidewater-{stack}-node-1",
        "status": "ACTIVE",
        "tags": settings.parse(graph.defaults(), stack=stack).own_tags,
    }

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token.endswith(":getNodeGroups"):
            return {"names": ["general", name]}
        if token.endswith(":getNodeGroup") and arguments["nodeGroupName"] == name:
            return {**arguments, **group}
        return existing_cluster.ask(token, arguments)

    return ask


def has(*names: str, own: bool = False) -> Look:
    """Answer as an API server with these namespaces; `own`: whether a stack has made them."""
    return lambda _: Objects({("Namespace", name): own for name in names})


def test_a_stack_with_a_longer_name_on_the_cluster_is_not_taken_for_this_one() -> None:
    ask = with_nodes_of("local-2", "tidewater-local-2-system-1")
    with pytest.raises(settings.ConfigurationError, match="namespace = training: the cluster platform has one of this"):
        graph.run(lambda: graph.program(look=has("training", own=True)), {**CONFIG, "rolePath": "/ml/"}, ask=ask)


ADA, BOB = f"arn:aws:iam::{graph.ACCOUNT}:role/ml/ada", f"arn:aws:iam::{graph.ACCOUNT}:user/bob"
TEAMS: dict[str, Any] = {
    "fileAccess": "iam",
    "teams": [{"name": "vision", "maxWorkers": 2, "userArns": [ADA]}, {"name": "speech", "maxWorkers": 2}],
}


def test_teams_are_on_the_cluster_with_entries_and_roles_of_the_stacks() -> None:
    made = graph.run(graph.program, {**CONFIG, **TEAMS}, ask=existing_cluster.ask)
    entry = made.one("aws:eks/accessEntry:AccessEntry", "role-ml-ada").inputs
    assert (entry["clusterName"], entry["principalArn"], entry["kubernetesGroups"]) == (NAME, ADA, ["tidewater:vision"])
    trust = json.loads(made.one("aws:iam/role:Role", "-vision").inputs["assumeRolePolicy"])["Statement"][0]
    only = trust["Condition"]["StringEquals"]
    assert only["aws:RequestTag/eks-cluster-arn"] == existing_cluster.CLUSTER["arn"]
    identities = made.all("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    assert {each.inputs["namespace"] for each in identities} >= {"vision", "speech"}
    assert {each.inputs["clusterName"] for each in identities} == {NAME}


def test_people_whom_the_owner_has_let_in_are_refused_and_those_of_the_stack_stay() -> None:
    ours = settings.parse(graph.defaults(), stack="local").own_tags
    entries = {
        ADA: {"kubernetesGroups": ["tidewater:vision"], "tags": ours},
        BOB: {"kubernetesGroups": ["platform"], "tags": {}},
    }

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token.endswith(":getAccessEntry") and arguments["principalArn"] in entries:
            return {**arguments, **entries[arguments["principalArn"]]}
        return existing_cluster.ask(token, arguments)

    assert graph.run(graph.program, {**CONFIG, **TEAMS}, ask=ask).all("aws:eks/nodeGroup:NodeGroup")
    both = [{"name": "vision", "maxWorkers": 2, "userArns": [ADA, BOB]}]
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.run(graph.program, {**CONFIG, **TEAMS, "teams": both}, ask=ask)
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(f"teams.vision.userArns = {BOB}: has an access entry on the cluster {NAME} already")


def test_nodes_of_the_owner_are_not_asked_about_and_those_of_the_stack_say_that_it_is_there() -> None:
    ask = with_nodes_of("local", "tidewater-local-system-1")
    config = {**CONFIG, "rolePath": "/ml/"}
    ours = has("training", own=True)
    assert graph.run(lambda: graph.program(look=ours), config, ask=ask).all("aws:eks/nodeGroup:NodeGroup")
    with pytest.raises(settings.ConfigurationError, match="roles in another path would replace the node groups"):
        graph.run(graph.program, CONFIG, ask=ask)


def test_a_team_that_is_added_later_does_not_get_a_namespace_of_the_owners() -> None:
    ask, config = with_nodes_of("local", "tidewater-local-system-1"), {**CONFIG, **TEAMS, "rolePath": "/ml/"}
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.run(lambda: graph.program(look=has("vision")), config, ask=ask)
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(f"teams = vision: the cluster {NAME} has a namespace of this name already, and it would")


def test_the_control_plane_is_not_paid_for() -> None:
    assert "controlPlane" not in prices.hourly(settings.parse(CONFIG, stack="dev"))


def refused(recorded: dict[str, Any], **changes: Any) -> list[str]:
    here = place.Place.of(settings.parse({**graph.defaults(), **changes}, stack="dev"))
    return place.mistakes(here, place.first_place(here, recorded))


def test_a_stack_stays_on_the_cluster_of_its_first_update() -> None:
    network = {"cidr": "", "zones": "", "vpc": existing_vpc.VPC, "subnets": ",".join(existing_vpc.SUBNETS)}
    first = {"region": "us-west-2", "stack": "dev", "namespace": "training", **network, "cluster": NAME}
    assert refused(first, **existing_cluster.CONFIG) == []
    (moved,) = refused(first, **{**existing_cluster.CONFIG, "clusterName": "other"})
    assert moved.startswith(f"clusterName = other: the stack is on {NAME}; set it back")
    (left,) = refused(first, **existing_vpc.CONFIG)
    assert left.startswith(f"clusterName = (empty): the stack is on {NAME}; set it back")


def test_a_stack_with_a_cluster_of_its_own_is_not_moved_by_a_version_that_knows_existing_ones() -> None:
    network = {"cidr": "", "zones": "", "vpc": existing_vpc.VPC, "subnets": ",".join(existing_vpc.SUBNETS)}
    older = {"region": "us-west-2", "stack": "dev", "namespace": "training", **network}
    assert refused(older, **existing_vpc.CONFIG) == []
    (moved,) = refused(older, **existing_cluster.CONFIG)
    assert moved.startswith(f"clusterName = {NAME}: the stack is on a cluster of its own, tidewater-dev; set it back")
