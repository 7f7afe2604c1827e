"""Code comes into a pod as an archive in the bucket, whose name is its content."""

from __future__ import annotations

from contract import code

SHIPPED = code.shipped("s3://b/code/1.tar", fetch_image="fetch", unpack_image="own", directory="/job")


def test_the_same_content_has_the_same_key_and_another_content_another() -> None:
    assert code.key(b"a", "tar") == code.key(b"a", "tar") != code.key(b"b", "tar")
    assert code.key(b"a", "tar").startswith("code/")
    assert code.key(b"a", "tar").endswith(".tar")


def test_an_archive_is_downloaded_before_it_is_unpacked_by_the_image_that_runs_it() -> None:
    fetch, unpack = SHIPPED.init_containers
    assert fetch["image"] == "fetch"
    assert fetch["command"][:3] == ["aws", "s3", "cp"]
    assert "s3://b/code/1.tar" in fetch["command"]
    assert unpack["image"] == "own"
    downloaded = fetch["command"][-1]
    assert unpack["command"] == ["tar", "-xf", downloaded, "-C", "/job"]


def test_each_container_mounts_the_directories_that_it_writes_to() -> None:
    fetch, unpack = SHIPPED.init_containers
    (code_mount,) = SHIPPED.mounts
    volumes = {volume["name"] for volume in SHIPPED.volumes}
    assert code_mount["mountPath"] == "/job"
    assert code_mount in unpack["volumeMounts"]
    assert {mount["name"] for mount in [*fetch["volumeMounts"], *unpack["volumeMounts"]]} == volumes
    (archive,) = fetch["volumeMounts"]
    assert fetch["command"][-1].startswith(archive["mountPath"])
    assert fetch["env"] == [{"name": "HOME", "value": archive["mountPath"]}]


def test_neither_init_container_has_privileges() -> None:
    for container in SHIPPED.init_containers:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
