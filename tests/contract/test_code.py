"""Code comes into a pod as an archive in the bucket, named after its content."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidewater.contract import code

SHIPPED = code.shipped("s3://b/code/1.tar", fetch_image="fetch", unpack_image="own", directory="/job")


def tar(**files: bytes) -> code.Archive:
    """Return an archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=code.TAR_FORMAT) as archive:
        code.add_folder(archive, "folder")
        for name, content in files.items():
            code.add_file(archive, name, content, executable=name == "program")
        code.add_file(archive, "link", b"", link="elsewhere")
    return code.Archive(buffer.getvalue())


class Bucket:
    """A store as boto3's client of S3 shows it."""

    def __init__(self, refusal: str) -> None:
        self.refusal, self.objects = refusal, dict[str, bytes]()

    def head_object(self, *, Bucket: str, Key: str) -> Mapping[str, Any]:  # noqa: N803
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": self.refusal}}, "HeadObject")
        return {}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> Mapping[str, Any]:  # noqa: N803
        self.objects[Key] = Body
        return {}


def test_the_same_content_has_the_same_key_and_another_content_another() -> None:
    assert tar(a=b"1").key == tar(a=b"1").key != tar(a=b"2").key
    assert tar(a=b"1").key.startswith("code/")
    assert tar(a=b"1").key.endswith(".tar")


def test_an_archive_has_files_folders_and_links_with_their_modes() -> None:
    with tarfile.open(fileobj=io.BytesIO(tar(a=b"1", program=b"2").content)) as archive:
        found = {entry.name: (entry.type, entry.mode, entry.linkname) for entry in archive.getmembers()}
    assert found == {
        "folder": (tarfile.DIRTYPE, 0o755, ""),
        "a": (tarfile.REGTYPE, 0o644, ""),
        "program": (tarfile.REGTYPE, 0o755, ""),
        "link": (tarfile.SYMTYPE, 0o644, "elsewhere"),
    }


@pytest.mark.parametrize("refusal", ["404", "403", "NoSuchKey"])
def test_an_archive_is_stored_once(refusal: str) -> None:
    bucket = Bucket(refusal)
    assert code.store(tar(a=b"1"), "b", bucket)
    assert not code.store(tar(a=b"1"), "b", bucket)
    assert bucket.objects == {tar(a=b"1").key: tar(a=b"1").content}


def test_another_refusal_of_the_store_is_the_callers() -> None:
    with pytest.raises(ClientError, match="500"):
        code.store(tar(a=b"1"), "b", Bucket("500"))


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
