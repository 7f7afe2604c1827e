"""FSx describes file systems of Lustre as clients and preflights need it, and each has a folder while it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from localcloud.aws.files import fsx_rules

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from packages.localcloud.tests.aws.launches import refused


def made(operator: Clients, **configuration: str) -> tuple[str, dict[str, Any]]:
    """Make a file system of Lustre in a VPC; return the VPC and the file system."""
    vpc = operator("ec2").create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = operator("ec2").create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]
    asked = {"FileSystemType": "LUSTRE", "StorageCapacity": 1200, "SubnetIds": [subnet]}
    found = operator("fsx").create_file_system(**asked, LustreConfiguration=configuration)["FileSystem"]
    return vpc, found


@pytest.mark.parametrize(("kind", "fixed"), [("SCRATCH_1", True), ("PERSISTENT_2", False)])
def test_a_file_system_of_lustre_has_a_state_a_vpc_and_a_mount_name(operator: Clients, kind: str, fixed: bool) -> None:
    vpc, system = made(operator, DeploymentType=kind)
    (found,) = operator("fsx").describe_file_systems(FileSystemIds=[system["FileSystemId"]])["FileSystems"]
    assert (found["Lifecycle"], found["VpcId"]) == ("AVAILABLE", vpc)
    assert (found["LustreConfiguration"]["MountName"] == "fsx") is fixed
    assert found["DNSName"] == f"{found['FileSystemId']}.fsx.{REGION}.amazonaws.com"


def test_a_file_system_that_does_not_exist_is_the_services_error(operator: Clients) -> None:
    refused("FileSystemNotFound", lambda: operator("fsx").describe_file_systems(FileSystemIds=["fs-0123456789"]))


def test_each_has_a_folder_until_it_is_deleted(operator: Clients, tmp_path: Path) -> None:
    kept, gone = (made(operator, DeploymentType="SCRATCH_2")[1] for _ in range(2))
    fsx_rules.make_folders(tmp_path / "lustre", ACCOUNT, REGION)
    folder = tmp_path / "lustre" / kept["FileSystemId"] / kept["LustreConfiguration"]["MountName"]
    (folder / "note").write_text("kept")
    assert (tmp_path / "lustre" / gone["FileSystemId"]).is_dir()
    operator("fsx").delete_file_system(FileSystemId=gone["FileSystemId"])
    fsx_rules.make_folders(tmp_path / "lustre", ACCOUNT, REGION)
    assert not (tmp_path / "lustre" / gone["FileSystemId"]).exists()
    assert (folder / "note").read_text() == "kept"
