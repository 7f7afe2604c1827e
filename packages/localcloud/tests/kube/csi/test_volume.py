"""Volume handles, and the folders of volumes."""

from __future__ import annotations

from pathlib import Path

import pytest
from localcloud.kube.csi.volume import InvalidVolume, Volume, entered_by, location, parse

FS, AP = "fs-0123456789abcdef0", "fsap-0123456789abcdef0"


@pytest.mark.parametrize(
    ("handle", "volume"),
    [
        pytest.param(FS, Volume(FS), id="file system"),
        pytest.param(f"{FS}:/data", Volume(FS, "/data"), id="path"),
        pytest.param(f"{FS}::{AP}", Volume(FS, "/", AP), id="access point"),
        pytest.param(f"{FS}:/data:{AP}", Volume(FS, "/data", AP), id="path in an access point"),
    ],
)
def test_volume_handles_of_the_official_driver_are_parsed(handle: str, volume: Volume) -> None:
    assert parse(handle) == volume


@pytest.mark.parametrize(
    "handle",
    ["", "vol-1", f"{FS}:a:b:c", f"{FS}::fs-1", f"{FS}:/../etc"],
    ids=["empty", "not EFS", "too many fields", "not an access point", "way out"],
)
def test_other_handles_are_refused_with_an_error_that_names_them(handle: str) -> None:
    with pytest.raises(InvalidVolume, match="volume ID"):
        parse(handle)


def test_a_mount_option_can_name_the_access_point_but_not_a_second_one() -> None:
    assert entered_by(Volume(FS), ["tls", f"accesspoint={AP}"]).access_point == AP
    with pytest.raises(InvalidVolume, match="conflicting access point"):
        entered_by(Volume(FS, "/", AP), ["accesspoint=fsap-00000000"])


def test_a_volumes_path_is_below_its_access_points_root() -> None:
    assert location(Path("/efs"), Volume(FS), "/") == Path("/efs") / FS
    assert location(Path("/efs"), Volume(FS, "/data"), "/job") == Path("/efs") / FS / "job" / "data"
