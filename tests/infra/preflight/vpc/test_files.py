"""An existing file system that nodes could not mount is refused, and one that fits is left as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import settings
from infra.preflight import place
from infra.preflight.vpc import files
from infra.preflight.vpc.files import Files
from scripts.policy import documents
from scripts.policy.scopes import Place
from tests import graph
from tests.infra.preflight.vpc import existing_vpc

ID = "fs-0123456789abcdef0"
CONFIG: dict[str, Any] = {**graph.defaults(), **existing_vpc.CONFIG, "fileSystemId": ID}
GOOD = Files(found=True, vpcs=frozenset({existing_vpc.VPC}), zones=frozenset({"us-west-2a", "us-west-2b"}))
A, B, _ = existing_vpc.SUBNETS


def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Answer for an account with this file system, with a mount target in each zone of the VPC's subnets."""
    match token.rpartition(":")[2]:
        case "getFileSystem" if arguments["fileSystemId"] == ID:
            return {"fileSystemId": ID, "encrypted": True}
        case "getFileSystem":
            raise graph.Refused("reading EFS file system (fs-00000000): couldn't find resource")
        case "getNetworkInterfaces":
            assert arguments["filters"] == [{"name": "description", "values": [f"EFS mount target for {ID} (*"]}]
            return {"ids": ["eni-a", "eni-b"]}
        case "getNetworkInterface":
            return {"vpcId": existing_vpc.VPC, "availabilityZone": f"us-west-2{arguments['id'][-1]}"}
    return existing_vpc.ask(token, arguments)


def stack() -> settings.Settings:
    zones = tuple(settings.Subnet(id_, zone) for id_, zone in existing_vpc.SUBNETS.items())
    return settings.parse(CONFIG, stack="dev").with_vpc(("10.8.0.0/16",), zones)


MAKE = f"aws efs create-mount-target --file-system-id {ID} --security-groups GROUP --subnet-id"
BAD: dict[str, tuple[Files, list[str]]] = {
    "no such": (Files(found=False), [f"fileSystemId = {ID}: us-west-2 has no such file system; correct it"]),
    "another VPC": (
        replace(GOOD, vpcs=frozenset({"vpc-00000000"})),
        [f"fileSystemId = {ID}: its mount targets are in vpc-00000000, and the stack is in {existing_vpc.VPC}; name"],
    ),
    "a zone": (
        replace(GOOD, zones=frozenset({"us-west-2a", "us-west-2c"})),
        ["has no mount target in us-west-2b, so nodes there can't mount it; make one with a security group that lets"],
    ),
    "no mount target": (
        Files(found=True),
        ["no mount target in us-west-2a, so nodes there can't mount it", f"{MAKE} {B}"],
    ),
}


@pytest.mark.parametrize(("there", "expected"), BAD.values(), ids=BAD)
def test_what_nodes_could_not_mount_is_refused_with_the_remedy(there: Files, expected: list[str]) -> None:
    found = files.mistakes(stack(), there)
    assert len(found) == len(expected), found
    assert all(part in each for part, each in zip(expected, found, strict=True)), found


def test_one_that_fits_is_no_mistake_and_only_plain_data_is_a_warning() -> None:
    assert files.mistakes(stack(), GOOD) == files.warnings(stack(), GOOD) == []
    (warning,) = files.warnings(stack(), replace(GOOD, encrypted=False))
    assert warning.startswith(f"fileSystemId = {ID}: is not encrypted at rest")


def test_a_file_system_of_another_region_is_refused_before_anything_is_made() -> None:
    made = graph.Graph()
    with pytest.raises(settings.ConfigurationError, match="fileSystemId = fs-00000000: us-west-2 has no such file"):
        graph.run(graph.program, {**CONFIG, "fileSystemId": "fs-00000000"}, ask=ask, graph=made)
    assert [each.type for each in made.resources if each.type.startswith("aws:")] == []


def test_only_an_access_point_is_made_on_it_in_a_folder_of_the_stacks() -> None:
    made = graph.run(graph.program, CONFIG, ask=ask)
    assert {each.type for each in made.resources if each.type.startswith("aws:efs/")} == {
        "aws:efs/accessPoint:AccessPoint"
    }
    assert not made.all("aws:ec2/securityGroup:SecurityGroup")
    point = made.one("aws:efs/accessPoint:AccessPoint")
    assert (point.inputs["fileSystemId"], point.inputs["rootDirectory"]["path"]) == (ID, "/tidewater-local")
    volume = made.one("kubernetes:core/v1:PersistentVolume").inputs["spec"]["csi"]
    assert volume["volumeHandle"] == f"{ID}::{point.id}"
    assert made.outputs["fileSystemId"] == ID


def test_nodes_get_the_right_to_mount_that_folder_if_clients_need_one() -> None:
    def mounts(made: graph.Graph) -> dict[str, Any]:
        written = [each for each in made.all("aws:iam/rolePolicy:RolePolicy") if each.name.endswith("-mount")]
        return {each.inputs["role"]: json.loads(each.inputs["policy"])["Statement"] for each in written}

    made = graph.run(graph.program, {**CONFIG, "fileAccess": "iam"}, ask=ask)
    point = made.one("aws:efs/accessPoint:AccessPoint")
    assert mounts(made).keys() == {"tidewater-local-node", "tidewater-local-surge-node"}
    for (statement,) in mounts(made).values():
        assert statement["Resource"] == point.outputs["fileSystemArn"]
        through = statement["Condition"]["StringEquals"]["elasticfilesystem:AccessPointArn"]
        assert through == [point.outputs["arn"]]
    volume = made.one("kubernetes:core/v1:PersistentVolume").inputs["spec"]
    assert "iam" in volume["mountOptions"]
    assert not mounts(graph.run(graph.program, CONFIG, ask=ask))


def test_the_least_policies_change_no_file_system_of_others() -> None:
    wanted = settings.parse(CONFIG, stack="dev")
    printed = documents.policies(wanted, Place.of(wanted, graph.ACCOUNT))
    (files_of,) = (each for policy in printed for each in policy["Statement"] if each["Sid"] == "Files")
    arn = f"arn:aws:elasticfilesystem:us-west-2:{graph.ACCOUNT}"
    assert files_of["Resource"] == [f"{arn}:file-system/{ID}", f"{arn}:access-point/*"]
    changes = ("UpdateFile", "DeleteFile", "PutBackup", "CreateMount", "DeleteMount", "ModifyMount")
    assert not [each for each in files_of["Action"] if each.partition(":")[2].startswith(changes)]


def test_a_stack_stays_on_the_file_system_of_its_first_update() -> None:
    here = place.Place.of(settings.parse({**CONFIG, "fileSystemId": "fs-00000000"}, stack="dev"))
    network = {"cidr": "", "zones": "", "vpc": existing_vpc.VPC, "subnets": ",".join(existing_vpc.SUBNETS)}
    recorded = {"region": "us-west-2", "stack": "dev", "namespace": "training", **network}
    (moved,) = place.mistakes(here, place.first_place(here, {**recorded, "files": ID}))
    assert moved.startswith(f"fileSystemId = fs-00000000: the stack's data is on {ID}; set it back")
    (left,) = place.mistakes(here, place.first_place(here, recorded))
    assert left.startswith("fileSystemId = fs-00000000: the stack's data is on a file system of its own; set it back")
