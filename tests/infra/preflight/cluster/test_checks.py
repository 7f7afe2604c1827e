"""An existing cluster that doesn't fit is refused with a remedy, all at once and before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import settings
from infra.preflight import cluster
from infra.preflight.cluster import checks
from infra.preflight.cluster.checks import Cluster
from infra.preflight.cluster.objects import NoAnswer, Objects
from infra.preflight.cluster.taken import Inside
from infra.preflight.vpc.checks import Subnet, Table, Vpc
from tests import graph
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.vpc import existing_vpc

NAME, VPC = existing_cluster.NAME, existing_vpc.VPC
CHANGE = f"aws eks update-cluster-config --name {NAME}"
GOOD = Cluster(
    found=True,
    existing=settings.ExistingCluster(NAME, "https://platform.eks.example", "c2VjcmV0", "sg-1"),
    status="ACTIVE",
    version="1.35",
    vpc=VPC,
    mode="API",
    public=("0.0.0.0/0",),
    addons=existing_cluster.ADDONS,
)
ISOLATED = Vpc(found=True, subnets=(Subnet("subnet-1", VPC, "us-west-2a", 1000, table=Table("rtb-1")),))


def stack(**changes: Any) -> settings.Settings:
    """Return the settings of a stack on the cluster, before AWS is asked."""
    config = {**graph.defaults(), **existing_cluster.CONFIG, "monitoring": "none", **changes}
    return settings.parse(config, stack="dev")


def without(name: str) -> Mapping[str, str]:
    return {addon: values for addon, values in existing_cluster.ADDONS.items() if addon != name}


BAD: dict[str, tuple[dict[str, Any], Cluster, Vpc | None, str]] = {
    "no such cluster": ({}, Cluster(found=False), None, f"clusterName = {NAME}: us-west-2 has no such cluster;"),
    "a cluster that goes": ({}, replace(GOOD, status="DELETING"), None, f"clusterName = {NAME}: is DELETING, so"),
    "an unknown version": ({}, replace(GOOD, version="1.31"), None, f"clusterName = {NAME}: has Kubernetes 1.31, and"),
    "another version": (
        {},
        replace(GOOD, version="1.34"),
        None,
        f"kubernetesVersion = 1.35: the cluster {NAME} has 1.34, and nodes have its version; set it to 1.34",
    ),
    "another VPC": (
        {},
        replace(GOOD, vpc="vpc-00000000"),
        None,
        f"vpcId = {VPC}: the cluster {NAME} is in vpc-00000000; set it to that",
    ),
    "only aws-auth": (
        {},
        replace(GOOD, mode="CONFIG_MAP"),
        None,
        f"{CHANGE} --access-config authenticationMode=API_AND_CONFIG_MAP",
    ),
    "no way to the API": (
        {},
        replace(GOOD, private=False),
        ISOLATED,
        f"has no private endpoint, and subnet-1 have no route to the internet; turn it on: {CHANGE}",
    ),
    "no private endpoint for the collector": (
        {"monitoring": "managed"},
        replace(GOOD, private=False),
        None,
        f"monitoring = managed: its collector needs the private endpoint of the cluster {NAME}; turn it on",
    ),
    "no access": (
        {},
        replace(GOOD, inside=Inside(unread="401 Unauthorized.")),
        None,
        f"clusterName = {NAME}: its Kubernetes API doesn't let in the one who deploys: 401 Unauthorized. Make this",
    ),
    "no pod identity": (
        {},
        replace(GOOD, addons=without("eks-pod-identity-agent")),
        None,
        f"clusterName = {NAME}: lacks the addon eks-pod-identity-agent, and pods would get no role; install it",
    ),
    "no driver": (
        {},
        replace(GOOD, addons=without("aws-efs-csi-driver")),
        None,
        "aws eks create-addon --cluster-name platform --addon-name aws-efs-csi-driver",
    ),
    "no driver for Lustre": (
        {"lustre": {"fileSystemId": "fs-0123456789abcdef0", "mountName": "abcdefgh"}},
        GOOD,
        None,
        f"clusterName = {NAME}: lacks the addon aws-fsx-csi-driver, and pods could not mount the Lustre file system;",
    ),
}


@pytest.mark.parametrize(("changes", "there", "vpc", "expected"), BAD.values(), ids=BAD.keys())
def test_what_the_stack_cant_use_is_one_mistake_with_key_value_and_remedy(
    changes: dict[str, Any], there: Cluster, vpc: Vpc | None, expected: str
) -> None:
    (mistake,) = cluster.mistakes(stack(**changes), there, vpc)
    assert expected in mistake


def test_a_cluster_that_fits_is_no_mistake_and_no_warning() -> None:
    assert cluster.mistakes(stack(), GOOD, ISOLATED) == cluster.warnings(stack(), GOOD) == []
    both = replace(GOOD, mode="API_AND_CONFIG_MAP", status="UPDATING")
    assert cluster.mistakes(stack(), both, None) == []


WARNED: dict[str, tuple[Cluster, str]] = {
    "private": (replace(GOOD, public=()), f"clusterName = {NAME}: its API is private, so pulumi and kubectl must run"),
    "public for a few": (
        replace(GOOD, private=False, public=("8.8.4.4/32",)),
        "the addresses with which nodes leave the VPC must be in its public ones (8.8.4.4/32), or no node joins",
    ),
    "no policies": (replace(GOOD, addons={**existing_cluster.ADDONS, "vpc-cni": ""}), "doesn't enforce network polic"),
    "no policies of others": (replace(GOOD, addons=without("vpc-cni")), "doesn't enforce network policies"),
    "no repair": (replace(GOOD, addons=without(checks.MONITORING)), "EKS repairs no node with a faulty GPU"),
}


@pytest.mark.parametrize(("there", "expected"), WARNED.values(), ids=WARNED.keys())
def test_what_may_be_wanted_is_one_warning(there: Cluster, expected: str) -> None:
    (warning,) = cluster.warnings(stack(), there)
    assert expected in warning


@pytest.mark.parametrize(
    "values", ['{"enableNetworkPolicy": true}', '{"enableNetworkPolicy": "true"}', 'enableNetworkPolicy: "true"']
)
def test_policies_are_enforced_however_the_addon_is_configured(values: str) -> None:
    assert cluster.warnings(stack(), replace(GOOD, addons={**existing_cluster.ADDONS, "vpc-cni": values})) == []


def deploy(ask: graph.Ask, look: cluster.Look = graph.nothing_there, **changes: Any) -> graph.Graph:
    config = {**graph.defaults(), **existing_cluster.CONFIG, **changes}
    return graph.run(lambda: graph.program(look=look), config, ask=ask)


def answering(**changes: Any) -> graph.Ask:
    """Answer as `existing_cluster.ask`, but for these fields of the cluster."""

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = existing_cluster.ask(token, arguments)
        return {**found, **changes} if token.endswith(":getCluster") else found

    return ask


def test_all_that_is_wrong_with_a_cluster_is_said_at_once_and_nothing_is_made() -> None:
    def refuse(_: str) -> Objects:
        raise NoAnswer("Forbidden.")

    made = graph.Graph()
    ask = answering(version="1.34", accessConfigs=[{"authenticationMode": "CONFIG_MAP"}])
    config = {**graph.defaults(), **existing_cluster.CONFIG, "vpcId": VPC, "systemInstanceTypes": ["m7g.large"]}
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.run(lambda: graph.program(look=refuse), config, ask=ask, graph=made)
    keys = [each.split(" ")[0] for each in refused.value.mistakes]
    assert keys == ["kubernetesVersion", "clusterName", "clusterName", "systemInstanceTypes"]
    assert [each.type for each in made.resources if each.type.startswith("aws:")] == []


def test_a_cluster_of_another_region_is_refused_before_anything_is_made() -> None:
    with pytest.raises(settings.ConfigurationError, match="clusterName = elsewhere: us-west-2 has no such cluster"):
        deploy(existing_cluster.ask, clusterName="elsewhere")


def test_the_end_of_standard_support_is_its_owners_matter() -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = existing_cluster.ask(token, arguments)
        if token.endswith(":getClusterVersions"):
            return {"clusterVersions": [{**found["clusterVersions"][0], "versionStatus": "EXTENDED_SUPPORT"}]}
        return found

    assert deploy(ask).all("aws:eks/nodeGroup:NodeGroup")
