"""The dataset is there whole, or made anew, or refused."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from trainer.data import Augment, ImageFolder
from trainer.dataset import Source, prepare, verify
from trainer.errors import ConfigError
from trainer.log import Log

DIGITS = Source(name="digits")


def test_the_digits_are_image_files_in_ten_classes(digits: Path) -> None:
    train, val = ImageFolder(digits / "train"), ImageFolder(digits / "val")
    assert train.classes == val.classes == tuple("0123456789")
    assert len(train) + len(val) == 1797
    images, labels = train.batch((0, len(train) - 1))
    assert images.shape == (2, 1, 8, 8)
    assert labels.tolist() == [0, 9]
    assert images.min() >= -1
    assert images.max() <= 1


def test_an_intact_dataset_is_not_written_again(digits: Path, quiet: Log) -> None:
    before = digits.stat().st_ino
    prepare(DIGITS, digits, quiet)
    assert digits.stat().st_ino == before


@pytest.mark.parametrize("damage", ["missing", "changed", "manifest"])
def test_a_damaged_dataset_is_noticed_and_repaired(damage: str, digits: Path, tmp_path: Path, quiet: Log) -> None:
    out = tmp_path / "digits"
    shutil.copytree(digits, out)
    victim = next((out / "train" / "3").iterdir()) if damage != "manifest" else out / "manifest.json"
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(b"not what it was")
    assert verify(out, DIGITS)
    prepare(DIGITS, out, quiet)
    assert verify(out, DIGITS) is None


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_of_an_image_folder_is_unpacked(kind: str, digits: Path, tmp_path: Path, quiet: Log) -> None:
    archive = tmp_path / f"images.{kind}"
    files = [next((digits / part / "1").iterdir()) for part in ("train", "val")]
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as stream:
            for file in files:
                stream.write(file, Path("top") / file.relative_to(digits))
    else:
        with tarfile.open(archive, "w:gz") as tar:
            for file in files:
                tar.add(file, file.relative_to(digits))
    prepare(Source(uri=archive.as_uri()), tmp_path / "out", quiet)
    assert len(ImageFolder(tmp_path / "out" / "train")) == 1


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        pytest.param("ftp://host/x", "s3://bucket/key", id="scheme"),
        pytest.param("file:///does/not/exist.zip", "does/not/exist", id="missing"),
        pytest.param(Path(__file__).as_uri(), "neither a zip nor a tar", id="no-archive"),
    ],
)
def test_a_bad_address_is_an_error_that_names_it(uri: str, words: str, tmp_path: Path, quiet: Log) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare(Source(uri=uri), tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


def test_an_unknown_name_says_what_is_known(tmp_path: Path, quiet: Log) -> None:
    with pytest.raises(ConfigError, match="use digits"):
        prepare(Source(name="cats"), tmp_path / "out", quiet)


def test_augmentation_depends_on_nothing_but_seed_epoch_and_sample(digits: Path) -> None:
    data = ImageFolder(digits / "train")
    together, _ = data.batch((5, 6, 7), Augment(0, 3))
    alone, _ = data.batch((6,), Augment(0, 3))
    assert together[1].equal(alone[0])
    shifts = {Augment(0, epoch).shift(6, 1) for epoch in range(50)}
    assert len(shifts) == 9
