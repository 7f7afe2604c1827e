"""Karpenter's policy: the requests that Karpenter sends for this cluster pass, and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from localcloud.aws.policy import Decision, Query, evaluate

from infra.policies import karpenter, to_json
from infra.policies.karpenter import Scope, Uses
from settings.nodes import MAX_RESERVATIONS

ACCOUNT, REGION, CLUSTER = "123456789012", "us-west-2", "tidewater-dev"
SCOPE = Scope("aws", REGION, ACCOUNT, CLUSTER)
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{CLUSTER}"
NODE_ROLE = f"arn:aws:iam::{ACCOUNT}:role/{CLUSTER}-surge-node"
EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}"
PROFILE = f"arn:aws:iam::{ACCOUNT}:instance-profile/karpenter/{REGION}/{CLUSTER}/7f0c/{CLUSTER}_1"
SPOT_ROLE = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
LONGEST_INLINE_POLICY = 10_240
"""Characters of all inline policies of a role.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"""

Tags = dict[str, str]


def launch_tags(cluster: str = CLUSTER) -> Tags:
    """Return the tags of what Karpenter launches: `GetTags` in `pkg/utils/utils.go` of its source."""
    return {
        f"kubernetes.io/cluster/{cluster}": "owned",
        "karpenter.sh/nodepool": "workers",
        "eks:eks-cluster-name": cluster,
        "karpenter.k8s.aws/ec2nodeclass": "workers",
        "Stack": "dev",
    }


def profile_tags(cluster: str = CLUSTER, region: str = REGION) -> Tags:
    """Return the tags of Karpenter's instance profiles: `InstanceProfileTags` in `pkg/apis/v1/ec2nodeclass.go`."""
    tags = {key: value for key, value in launch_tags(cluster).items() if key != "karpenter.sh/nodepool"}
    return {**tags, "topology.kubernetes.io/region": region}


OURS, OTHERS = launch_tags(), launch_tags("other")
OUR_PROFILE, OTHER_PROFILE = profile_tags(), profile_tags("other")


def allowed(
    action: str,
    resource: str,
    *,
    spot: bool = True,
    placement_group: bool = False,
    disk_key: str = "",
    region: str = REGION,
    **context: object,
) -> bool:
    """Return whether the policy allows a request with these tags (`wanted`), on something with those (`existing`)."""
    reservations = context.pop("reservations", ())
    assert isinstance(reservations, tuple)
    keys: dict[str, tuple[str, ...]] = {"aws:requestedregion": (region,)}
    for name, kind in (("wanted", "requesttag"), ("existing", "resourcetag")):
        tags = context.pop(name, {})
        assert isinstance(tags, dict)
        keys |= {f"aws:{kind}/{key}".lower(): (value,) for key, value in tags.items()}
        if name == "wanted" and tags:
            keys["aws:tagkeys"] = tuple(tags)
    keys |= {name.replace("__", ":").lower(): (str(value),) for name, value in context.items()}
    uses = Uses(QUEUE, NODE_ROLE, spot, placement_group, disk_key, reservations)
    document = karpenter.controller(SCOPE, uses)
    return evaluate([document], Query(action, resource, keys)) is Decision.ALLOW


@pytest.mark.parametrize(
    "action", ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext"]
)
def test_the_key_of_disks_is_used_through_ec2_only(action: str) -> None:
    key = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234"
    via: dict[str, Any] = {"kms__ViaService": f"ec2.{REGION}.amazonaws.com"}
    for_aws: dict[str, Any] = {"kms__GrantIsForAWSResource": "true"}
    assert allowed(action, key, disk_key=key, **via, **for_aws)
    assert allowed(action, key, disk_key=key, **via) is (action != "kms:CreateGrant")
    assert not allowed(action, key, disk_key=key, **for_aws)
    assert not allowed(action, f"{key}5", disk_key=key, **via, **for_aws)
    assert not allowed(action, key, **via, **for_aws)


@pytest.mark.parametrize("action", ["ec2:CreateFleet", "ec2:RunInstances"])
@pytest.mark.parametrize(
    "resource",
    [
        f"arn:aws:ec2:{REGION}::image/ami-1",
        f"{EC2}:subnet/subnet-1",
        f"{EC2}:security-group/sg-1",
    ],
)
def test_launches_use_images_subnets_and_security_groups(action: str, resource: str) -> None:
    assert allowed(action, resource, wanted=OURS)
    assert not allowed(action, resource.replace(REGION, "eu-west-1"), wanted=OURS)


@pytest.mark.parametrize("action", ["ec2:CreateFleet", "ec2:RunInstances"])
def test_launches_use_only_the_clusters_own_launch_templates(action: str) -> None:
    template = f"{EC2}:launch-template/lt-1"
    assert allowed(action, template, existing=OURS)
    assert not allowed(action, template, existing=OTHERS)
    assert not allowed(action, template, existing={"kubernetes.io/cluster/tidewater-dev": "owned"})


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("ec2:CreateLaunchTemplate", "launch-template"),
        ("ec2:CreateFleet", "fleet"),
        ("ec2:CreateFleet", "instance"),
        ("ec2:CreateFleet", "spot-instances-request"),
        ("ec2:RunInstances", "volume"),
        ("ec2:RunInstances", "network-interface"),
    ],
)
def test_what_is_launched_has_the_clusters_tags(action: str, kind: str) -> None:
    made = f"{EC2}:{kind}/*"
    assert allowed(action, made, wanted=OURS)
    assert not allowed(action, made, wanted=OTHERS)
    assert not allowed(action, made)
    assert allowed("ec2:CreateTags", made, wanted=OURS, ec2__CreateAction=action.removeprefix("ec2:"))
    assert not allowed("ec2:CreateTags", made, wanted=OTHERS, ec2__CreateAction=action.removeprefix("ec2:"))


def test_a_validation_before_there_is_a_node_pool_passes() -> None:
    assert allowed("ec2:RunInstances", f"{EC2}:instance/*", wanted={**OURS, "karpenter.sh/nodepool": ""})


def test_an_instance_gets_its_name_and_its_claim_later_and_nothing_else() -> None:
    instance, wanted = f"{EC2}:instance/i-1", {"Name": "node-1", "karpenter.sh/nodeclaim": "workers-x1"}
    assert allowed("ec2:CreateTags", instance, existing=OURS, wanted=wanted)
    assert allowed("ec2:CreateTags", instance, existing=OURS, wanted={**wanted, "eks:eks-cluster-name": CLUSTER})
    assert not allowed("ec2:CreateTags", instance, existing=OURS, wanted={**wanted, "eks:eks-cluster-name": "other"})
    assert not allowed("ec2:CreateTags", instance, existing=OURS, wanted={"kubernetes.io/cluster/other": "owned"})
    assert not allowed("ec2:CreateTags", instance, existing=OTHERS, wanted=wanted)


@pytest.mark.parametrize(
    ("action", "resource"),
    [("ec2:TerminateInstances", f"{EC2}:instance/i-1"), ("ec2:DeleteLaunchTemplate", f"{EC2}:launch-template/lt-1")],
)
def test_only_what_karpenter_launched_for_this_cluster_ends(action: str, resource: str) -> None:
    assert allowed(action, resource, existing=OURS)
    assert not allowed(action, resource, existing=OTHERS)
    # A node of a node group: it has the cluster's tag, and belongs to no node pool.
    assert not allowed(action, resource, existing={f"kubernetes.io/cluster/{CLUSTER}": "owned"})


def test_instance_profiles_are_the_clusters_own() -> None:
    assert allowed("iam:CreateInstanceProfile", PROFILE, wanted=OUR_PROFILE)
    assert not allowed("iam:CreateInstanceProfile", PROFILE, wanted=OTHER_PROFILE)
    assert not allowed("iam:CreateInstanceProfile", PROFILE, wanted=profile_tags(region="eu-west-1"))
    for action in ("AddRoleToInstanceProfile", "RemoveRoleFromInstanceProfile", "DeleteInstanceProfile"):
        assert allowed(f"iam:{action}", PROFILE, existing=OUR_PROFILE)
        assert not allowed(f"iam:{action}", PROFILE, existing=OTHER_PROFILE)
        assert not allowed(f"iam:{action}", PROFILE.replace(CLUSTER, "other"), existing=OUR_PROFILE)
    assert allowed("iam:TagInstanceProfile", PROFILE, existing=OUR_PROFILE, wanted=OUR_PROFILE)
    assert not allowed("iam:TagInstanceProfile", PROFILE, existing=OTHER_PROFILE, wanted=OUR_PROFILE)


def test_a_profile_that_does_not_exist_is_asked_for_by_its_name() -> None:
    assert allowed("iam:GetInstanceProfile", f"arn:aws:iam::{ACCOUNT}:instance-profile/{CLUSTER}_8174")
    assert allowed("iam:GetInstanceProfile", PROFILE)
    assert not allowed("iam:GetInstanceProfile", f"arn:aws:iam::{ACCOUNT}:instance-profile/other")


def test_only_the_nodes_role_is_passed_and_only_to_ec2() -> None:
    assert allowed("iam:PassRole", NODE_ROLE, iam__PassedToService="ec2.amazonaws.com")
    assert not allowed("iam:PassRole", NODE_ROLE, iam__PassedToService="lambda.amazonaws.com")
    assert not allowed("iam:PassRole", f"{NODE_ROLE}-other", iam__PassedToService="ec2.amazonaws.com")


@pytest.mark.parametrize("action", ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueUrl"])
def test_messages_are_read_from_the_clusters_queue(action: str) -> None:
    assert allowed(action, QUEUE)
    assert not allowed(action, f"{QUEUE}-other")
    assert not allowed("sqs:SendMessage", QUEUE)


@pytest.mark.parametrize(
    "call",
    # The Describe operations of `EC2API` in `pkg/aws/sdk.go`, without those for what a node class has to select.
    [
        "Images",
        "InstanceStatus",
        "InstanceTypeOfferings",
        "InstanceTypes",
        "Instances",
        "LaunchTemplates",
        "SecurityGroups",
        "SpotPriceHistory",
        "Subnets",
    ],
)
def test_ec2_is_read_in_the_clusters_region(call: str) -> None:
    assert allowed(f"ec2:Describe{call}", "*")
    assert not allowed(f"ec2:Describe{call}", "*", region="eu-west-1")


def test_other_look_ups_are_of_images_prices_and_the_cluster() -> None:
    parameter = f"arn:aws:ssm:{REGION}::parameter/aws/service"
    image = "eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"
    assert allowed("ssm:GetParameter", f"{parameter}/{image}")
    assert not allowed("ssm:GetParameter", f"{parameter}/bottlerocket/x")
    assert allowed("pricing:GetProducts", "*")
    assert allowed("iam:ListInstanceProfiles", "*")
    assert allowed("eks:DescribeCluster", f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}")
    assert not allowed("eks:DescribeCluster", f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/other")
    assert not allowed("ec2:DescribePlacementGroups", "*")
    assert not allowed("ec2:DescribeCapacityReservations", "*")


def test_the_first_spot_request_of_an_account_may_make_ec2s_role() -> None:
    assert allowed("iam:CreateServiceLinkedRole", SPOT_ROLE, iam__AWSServiceName="spot.amazonaws.com")
    assert not allowed("iam:CreateServiceLinkedRole", SPOT_ROLE, iam__AWSServiceName="eks.amazonaws.com")
    assert not allowed("iam:CreateServiceLinkedRole", SPOT_ROLE, spot=False, iam__AWSServiceName="spot.amazonaws.com")


def test_the_policy_of_the_longest_names_fits_an_inline_policy() -> None:
    cluster = "c" * 32
    scope = Scope("aws-us-gov", "us-gov-west-1", ACCOUNT, cluster)
    queue = f"arn:aws-us-gov:sqs:us-gov-west-1:{ACCOUNT}:{cluster}"
    role = f"arn:aws-us-gov:iam::{ACCOUNT}:role/{'r' * 64}"
    key = f"arn:aws-us-gov:kms:us-gov-west-1:{ACCOUNT}:key/{'k' * 36}"
    uses = Uses(queue, role, True, True, key, [f"cr-{number:017x}" for number in range(MAX_RESERVATIONS)])
    document = karpenter.controller(scope, uses)
    # IAM doesn't count white space.
    assert len(json.dumps(json.loads(to_json(document)), separators=(",", ":"))) <= LONGEST_INLINE_POLICY


def test_rules_of_the_account_send_to_the_queue_over_tls_and_nobody_else_does() -> None:
    rule = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{CLUSTER}-karpenter-spot-0a1b2c3"

    def sends(principal: str, source: str, tls: str = "true") -> bool:
        keys = {"aws:sourcearn": (source,), "aws:securetransport": (tls,)}
        query = Query("sqs:SendMessage", QUEUE, keys, (principal,))
        return evaluate([karpenter.queue(SCOPE, QUEUE)], query) is Decision.ALLOW

    assert sends("service:events.amazonaws.com", rule)
    assert not sends("service:events.amazonaws.com", rule, tls="false")
    assert not sends("service:events.amazonaws.com", rule.replace(ACCOUNT, "999999999999"))
    assert not sends("service:sns.amazonaws.com", rule)


@pytest.mark.parametrize("used", [True, False])
def test_placement_groups_may_be_used_only_if_the_nodes_are_in_one(used: bool) -> None:
    group = f"{EC2}:placement-group/workers"
    for action, resource in (
        ("ec2:RunInstances", group),
        ("ec2:CreateFleet", group),
        ("ec2:DescribePlacementGroups", "*"),
    ):
        assert allowed(action, resource, placement_group=used) is used


def test_only_the_capacity_reservations_that_are_named_are_used_those_that_others_share_too() -> None:
    named, other = "cr-0123456789abcdef0", "cr-0123456789abcdef1"
    for action in ("ec2:RunInstances", "ec2:CreateFleet"):
        for account in (ACCOUNT, "999999999999"):
            place = f"arn:aws:ec2:{REGION}:{account}:capacity-reservation"
            assert allowed(action, f"{place}/{named}", reservations=(named,))
            assert not allowed(action, f"{place}/{other}", reservations=(named,))
            assert not allowed(action, f"{place}/{named}")
    assert allowed("ec2:DescribeCapacityReservations", "*", reservations=(named,))
