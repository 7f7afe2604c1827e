"""What the driver asks EFS before it mounts a volume."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.kube.csi.efs import Ask, RootDirectory, check
from localcloud.kube.csi.volume import NotMountable, Volume

FS, AP = "fs-0123456789abcdef0", "fsap-0123456789abcdef0"


def aws(state: str = "available", zone: str = "us-west-2a", owner: str = FS) -> Ask:
    creation = {"OwnerUid": 7, "OwnerGid": 8, "Permissions": "0750"}
    answers: dict[str, dict[str, Any]] = {
        "/file-systems": {"FileSystems": [{"FileSystemId": FS, "LifeCycleState": state}]},
        "/mount-targets": {"MountTargets": [{"AvailabilityZoneName": zone, "LifeCycleState": "available"}]},
        "/access-points": {
            "AccessPoints": [{"FileSystemId": owner, "RootDirectory": {"Path": "/job", "CreationInfo": creation}}]
        },
    }
    return lambda path, query: answers[path]


def test_a_volume_needs_a_mount_target_in_the_nodes_zone() -> None:
    assert check(aws(), Volume(FS), "us-west-2a") == RootDirectory()
    with pytest.raises(NotMountable, match="no available mount target in us-west-2b; there are some in: us-west-2a"):
        check(aws(), Volume(FS), "us-west-2b")


def test_a_file_system_that_is_being_deleted_is_not_mounted() -> None:
    with pytest.raises(NotMountable, match="is not available"):
        check(aws(state="deleting"), Volume(FS), "us-west-2a")


def test_an_access_point_has_a_root_with_owner_and_mode() -> None:
    assert check(aws(), Volume(FS, "/", AP), "us-west-2a") == RootDirectory("/job", 7, 8, 0o750)


def test_an_access_point_of_another_file_system_is_refused() -> None:
    with pytest.raises(NotMountable, match="does not belong to"):
        check(aws(owner="fs-00000000"), Volume(FS, "/", AP), "us-west-2a")
