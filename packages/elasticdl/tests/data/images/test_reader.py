"""The same images give the same records from a folder, a zip and a tar, on a volume and in S3."""

from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elasticdl.data.examples.fields import decode
from elasticdl.data.images.store import ImageReader, open_store
from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Shard
from elasticdl.errors import DamagedData, DataError
from PIL import Image

BUCKET = "there"
TAR_COMPRESSIONS = {"tar": "", "tar.gz": "z", "tgz": "z"}


@pytest.fixture(scope="session")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with images of two classes."""
    root = tmp_path_factory.mktemp("pets")
    for name in ("cat", "dog"):
        (root / name).mkdir()
        for number in range(12):
            pixels = np.full((4, 5), 10 * number + (name == "dog"), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    (root / "README.md").write_text("no image")
    return root


def zipped(folder: Path, target: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(target, "w", method) as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, path.relative_to(folder))
    return target


def tarred(folder: Path, target: Path) -> Path:
    """Return a tar by GNU tar, which is how people make them."""
    letter = TAR_COMPRESSIONS[target.name.partition(".")[2]]
    subprocess.run(["tar", f"-c{letter}f", str(target), "-C", str(folder), "."], check=True)
    return target


def read_all(address: object) -> list[dict[str, Any]]:
    with ImageReader(str(address)) as reader:
        return [decode(record) for shard in reader.shards() for record in reader.read(shard)]


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    return [(each["path"], each["label"].item(), each["image"].tolist()) for each in found] == [
        (each["path"], each["label"].item(), each["image"].tolist()) for each in expected
    ]


def test_a_folder_gives_each_image_with_its_label(pets: Path) -> None:
    found = {each["path"]: each for each in read_all(pets)}
    assert len(found) == 24
    assert found["dog/3.png"]["label"].item() == 1
    assert found["dog/3.png"]["image"].tolist() == [[31] * 5] * 4


def test_the_names_of_the_labels_are_known(pets: Path) -> None:
    with ImageReader(str(pets)) as reader:
        assert reader.metadata.class_names == ("cat", "dog")


def test_a_task_gets_exactly_its_images(pets: Path) -> None:
    every = read_all(pets)
    with ImageReader(str(pets)) as reader:
        assert same([decode(record) for record in reader.read(Shard(str(pets), 5, 21))], every[5:21])


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_gives_the_same_records(pets: Path, tmp_path: Path, method: int) -> None:
    assert same(read_all(zipped(pets, tmp_path / "pets.zip", method)), read_all(pets))


@pytest.mark.parametrize("suffix", TAR_COMPRESSIONS)
def test_a_tar_gives_the_same_records(pets: Path, tmp_path: Path, suffix: str) -> None:
    assert same(read_all(tarred(pets, tmp_path / f"pets.{suffix}")), read_all(pets))


def test_a_bucket_gives_the_same_records(pets: Path, tmp_path: Path, bucket: Any) -> None:
    for path in pets.rglob("*.png"):
        bucket.upload_file(str(path), BUCKET, f"pets/{path.relative_to(pets)}")
    for archive in (zipped(pets, tmp_path / "pets.zip"), tarred(pets, tmp_path / "pets.tar")):
        bucket.upload_file(str(archive), BUCKET, archive.name)
    for address in ("s3://there/pets", "s3://there/pets.zip", "s3://there/pets.tar"):
        with open_reader(address) as reader:
            assert same([decode(each) for shard in reader.shards() for each in reader.read(shard)], read_all(pets))


@pytest.mark.parametrize("suffix", ["zip", "tar", "tar.gz"])
def test_an_archive_cut_off_anywhere_is_an_error(pets: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pets.{suffix}"
    whole = (zipped if suffix == "zip" else tarred)(pets, path).read_bytes()
    # A tar ends with blocks of zeros. One of them marks its end; the blocks after it mean nothing.
    content = len(whole.rstrip(b"\0")) if suffix == "tar" else len(whole)
    for length in (0, 1, 100, content // 3, content // 2, content - 600, content - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedData, match=str(path)):
            read_all(path)


def test_an_altered_member_of_a_zip_is_named_with_its_place(pets: Path, tmp_path: Path) -> None:
    path = zipped(pets, tmp_path / "pets.zip", zipfile.ZIP_STORED)
    whole = bytearray(path.read_bytes())
    offset = whole.index(b"IDAT")
    whole[offset + 10] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DamagedData, match=r"pets\.zip: cat/0\.png, at byte 0: Bad CRC-32"):
        read_all(path)


def test_an_altered_header_of_a_tar_is_an_error(pets: Path, tmp_path: Path) -> None:
    path = tarred(pets, tmp_path / "pets.tar")
    whole = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        member = archive.getmembers()[5]
    whole[member.offset + 20] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DamagedData, match=f"cut off or damaged at byte {member.offset}"):
        read_all(path)


def test_an_encrypted_member_is_refused(pets: Path, tmp_path: Path) -> None:
    path = zipped(pets, tmp_path / "pets.zip")
    whole = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        offset = whole.find(signature)
        while offset >= 0:
            whole[offset + flags] |= 1
            offset = whole.find(signature, offset + 4)
    path.write_bytes(whole)
    with pytest.raises(DataError, match="encrypted"):
        read_all(path)


def test_an_image_that_changes_during_the_job_is_an_error(pets: Path, tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes((pets / "cat" / "1.png").read_bytes())
    with ImageReader(str(tmp_path)) as reader:
        (shard,) = reader.shards()
        (tmp_path / "cat" / "1.png").write_bytes(b"other")
        with pytest.raises(DamagedData, match="has 5 bytes, and had"):
            list(reader.read(shard))


def test_a_folder_that_lost_images_since_they_were_counted_is_an_error(pets: Path) -> None:
    with ImageReader(str(pets)) as reader, pytest.raises(DamagedData, match=r"holds 24 images, and the task is"):
        list(reader.read(Shard(str(pets), 20, 30)))


def test_a_zip_of_a_mac_gives_the_images_alone(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("L", (2, 2)).save(buffer, "PNG")
    with zipfile.ZipFile(tmp_path / "mac.zip", "w") as archive:
        archive.writestr("set/cat/1.png", buffer.getvalue())
        archive.writestr("set/dog/1.png", buffer.getvalue())
        archive.writestr("__MACOSX/set/cat/._1.png", b"resource fork")
    assert sorted(each["path"] for each in read_all(tmp_path / "mac.zip")) == ["set/cat/1.png", "set/dog/1.png"]


def test_a_hard_link_in_a_tar_is_an_image(tmp_path: Path) -> None:
    path = tmp_path / "pets.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in (("cat/1.png", b"one"), ("dog/2.png", b"two")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("dog/3.png")
        link.type, link.linkname = tarfile.LNKTYPE, "cat/1.png"
        archive.addfile(link)
    with open_store(str(path)) as store:
        assert store.paths() == ["cat/1.png", "dog/2.png", "dog/3.png"]
        assert store.content("dog/3.png") == b"one"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"root": 3}, "root is 3"), ({"classes": "cat"}, "classes is 'cat'"), ({"classes": [1]}, "classes is")],
    ids=["root", "text", "numbers"],
)
def test_a_wrong_argument_is_named(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        ImageReader(str(tmp_path), **arguments)
