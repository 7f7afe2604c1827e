"""What a stack has left is found, whichever program made it, and deleted; what is another stack's, or in use, stays."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from infra.policies.documents import pod_identity_trust
from scripts.sweep import account
from scripts.sweep.account import KINDS, look, names
from scripts.sweep.compute import places
from scripts.sweep.model import Clients, Stack
from tests.scripts.sweep.conftest import POLICY, Lacking
from tests.scripts.sweep.leftovers import leave_everything, make_bucket, make_strangers

GONE = Stack("tidewater", "gone")
OTHER = Stack("tidewater", "gone-too")


def found(clients: Clients, stack: Stack) -> set[tuple[str, str]]:
    return {(thing.kind, thing.id) for thing in look(clients, stack).things}


def test_everything_that_a_stack_has_left_is_found_and_what_is_pulumis_is_reported_and_left_alone(
    clients: Clients, lacking: Lacking
) -> None:
    own = [{"ResourceType": "vpc", "Tags": [{"Key": key, "Value": value} for key, value in GONE.tags.items()]}]
    vpc = clients("ec2").create_vpc(CidrBlock="10.1.0.0/16", TagSpecifications=own)["Vpc"]["VpcId"]
    left = leave_everything(clients, lacking, GONE.name)
    seen = look(clients, GONE)
    assert {(thing.kind, thing.id) for thing in seen.things} >= set(left.items())
    assert {thing.kind for thing in seen.things} == {kind.label for kind in KINDS} == set(left)
    assert [arn.rpartition("/")[2] for arn in seen.others] == [vpc]
    assert seen.problems == ()
    lacking.refused = {"backup"}  # what can't be asked for does not hide the rest
    seen = look(clients, GONE)
    del left["recovery point"]
    assert {(thing.kind, thing.id) for thing in seen.things} >= set(left.items())
    (problem,) = seen.problems
    assert problem.startswith("recovery points can't be looked for: ")
    assert "AccessDeniedException" in problem


def test_an_empty_account_has_nothing_left(clients: Clients, lacking: Lacking) -> None:
    assert look(clients, GONE).things == ()
    assert look(clients, GONE).problems == ()


def test_what_is_found_can_be_deleted_and_another_stack_keeps_its_own(clients: Clients, lacking: Lacking) -> None:
    leave_everything(clients, lacking, GONE.name)
    kept = leave_everything(clients, lacking, OTHER.name)
    others = found(clients, OTHER)
    assert account.delete(clients, look(clients, GONE).things) == []
    assert found(clients, GONE) == set()
    assert found(clients, OTHER) == others
    assert list(lacking.points) == [kept["recovery point"]]
    assert json.loads(lacking.policy) == POLICY, "the vault's policy denies deletion again"


def test_a_recovery_point_with_a_slash_in_its_arn_is_found_and_deleted(clients: Clients, lacking: Lacking) -> None:
    """The ARN is part of a path: boto3 encodes its slash, as those of the vault's name."""
    arn, kept = (f"arn:aws:backup:us-west-2:123456789012:recovery-point/{id_}" for id_ in ("a/1", "a/2"))
    lacking.policy, lacking.points = json.dumps(POLICY), {arn: GONE.tags, kept: OTHER.tags}
    seen = look(clients, GONE)
    assert [(thing.kind, thing.id) for thing in seen.things] == [("recovery point", arn)]
    assert seen.problems == ()
    assert account.delete(clients, seen.things) == []
    assert list(lacking.points) == [kept]


def test_what_can_not_be_deleted_is_reported_and_what_has_gone_meanwhile_is_no_problem(
    clients: Clients, lacking: Lacking
) -> None:
    leave_everything(clients, lacking, GONE.name)
    things = look(clients, GONE).things
    lacking.refused = {"logs"}
    (problem,) = account.delete(clients, things)
    assert problem.startswith("log group /aws/eks/tidewater-gone/cluster: ")
    lacking.refused = set()
    assert {kind for kind, _ in found(clients, GONE)} == {"log group"}
    fakes = ("placement group", "recovery point", "instance", "pull-through rule")
    for _ in range(2):
        assert account.delete(clients, [thing for thing in things if thing.kind not in fakes]) == []
    assert found(clients, GONE) == set()


def test_what_is_in_use_is_left_alone(clients: Clients, lacking: Lacking) -> None:
    ec2 = clients("ec2")
    left = leave_everything(clients, lacking, GONE.name)
    ec2.attach_volume(VolumeId=left["volume"], InstanceId=left["instance"], Device="/dev/sdx")
    ec2.attach_network_interface(
        NetworkInterfaceId=left["network interface"], InstanceId=left["instance"], DeviceIndex=1
    )
    ec2.associate_address(AllocationId=left["address"], InstanceId=left["instance"])
    assert {"address", "volume", "network interface"}.isdisjoint(kind for kind, _ in found(clients, GONE))


def test_a_persons_own_repository_under_the_stacks_name_stays(clients: Clients, lacking: Lacking) -> None:
    for name in ("trainer", "trainer/quay", "quayside/x"):
        clients("ecr").create_repository(repositoryName=f"{GONE.name}/{name}")
    lacking.rules.append(f"{GONE.name}/github")
    assert found(clients, GONE) == set()


def test_a_bucket_with_objects_or_tags_or_of_another_name_or_region_stays(clients: Clients, lacking: Lacking) -> None:
    full, tagged, emptied = (make_bucket(clients("s3"), f"{GONE.name}-{letter * 7}") for letter in "abc")
    make_bucket(clients("s3"), f"{GONE.name}-own")
    connect: Any = boto3.client  # its type lists every service by name
    make_bucket(connect("s3", "eu-west-1", endpoint_url=clients("s3").meta.endpoint_url), f"{GONE.name}-{'d' * 7}")
    s3, tags = clients("s3"), [{"Key": key, "Value": value} for key, value in GONE.tags.items()]
    s3.put_object(Bucket=full, Key="a")
    s3.put_bucket_tagging(Bucket=tagged, Tagging={"TagSet": tags})
    s3.put_bucket_versioning(Bucket=emptied, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=emptied, Key="a")
    s3.delete_object(Bucket=emptied, Key="a")
    assert found(clients, GONE) == set()


def test_profiles_and_roles_of_a_stack_of_that_name_in_another_region_stay(clients: Clients, lacking: Lacking) -> None:
    iam, east = clients("iam"), "arn:aws:eks:us-east-1:123456789012:cluster/tidewater-gone"
    iam.create_instance_profile(InstanceProfileName="east", Path=f"/karpenter/us-east-1/{GONE.name}/workers/")
    trust = pod_identity_trust(east, "training", "trainer")
    tags = [{"Key": key, "Value": value} for key, value in GONE.tags.items()]
    iam.create_role(RoleName=f"{GONE.name}-trainer-1", AssumeRolePolicyDocument=json.dumps(trust), Tags=tags)
    assert found(clients, GONE) == set()


def test_on_a_cluster_of_others_profiles_are_found_by_their_tags_and_roles_by_the_cluster_that_they_name(
    clients: Clients, lacking: Lacking
) -> None:
    iam = clients("iam")
    path = "/karpenter/us-west-2/platform/workers/"
    for name, stack in (("own", GONE), ("others", OTHER)):
        tags = [{"Key": key, "Value": value} for key, value in stack.tags.items()]
        iam.create_instance_profile(InstanceProfileName=name, Path=path, Tags=tags)
    tags = [{"Key": key, "Value": value} for key, value in GONE.tags.items()]
    for region in ("us-west-2", "us-east-1"):
        trust = pod_identity_trust(f"arn:aws:eks:{region}:123456789012:cluster/platform", "training", "trainer")
        name = f"{GONE.name}-{region}"
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust), Tags=tags)
    assert found(clients, GONE) == {("instance profile", "own"), ("role", f"{GONE.name}-us-west-2")}


@pytest.mark.parametrize(
    ("used", "here"),
    [({}, True), ({"Region": "us-west-2"}, True), ({"Region": "us-east-1"}, False)],
    ids=["never", "here", "elsewhere"],
)
def test_a_role_that_names_no_cluster_is_where_it_was_used(used: dict[str, str], here: bool) -> None:
    role = {"AssumeRolePolicyDocument": {"Statement": []}, "RoleLastUsed": used}
    assert ("us-west-2" in places(role, "us-west-2")) is here


def test_what_others_have_in_the_stacks_vpc_is_found_and_what_it_keeps_is_not_listed_again(
    clients: Clients, lacking: Lacking
) -> None:
    vpc, subnet, group, endpoint = make_strangers(clients("ec2"), GONE)
    seen = look(clients, GONE)
    assert [(each.kind, each.id, each.keeps) for each in seen.strangers] == [
        ("endpoint", endpoint, (vpc, subnet)),
        ("security group", group, (vpc,)),
    ]
    assert (seen.things, seen.others) == ((), ())
    assert look(clients, OTHER).strangers == ()


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        ("arn:aws:ec2:us-west-2:1:volume/vol-1", "vol-1"),
        ("arn:aws:logs:us-west-2:1:log-group:/aws/eks/a/cluster", "/aws/eks/a/cluster"),
        ("arn:aws:ecr:us-west-2:1:repository/a/quay/etcd", "a/quay/etcd"),
    ],
)
def test_an_arn_and_an_id_name_the_same_thing(arn: str, name: str) -> None:
    assert {arn, name} <= names(arn)
