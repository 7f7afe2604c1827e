"""A dataset is complete, or is written again, or is refused."""

from __future__ import annotations

import errno
import http.server
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import tracemalloc
import zipfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.trainer import tiny_imagenet
from tidewater.elastic.data import archive, dataset
from tidewater.elastic.data.dataset import Source, folder, prepare
from tidewater.elastic.errors import ConfigError, TrainerError
from tidewater.elastic.observe.log import Log
from tidewater.elastic.storage.filled import Progress
from trainer.data import ImageFolder

DIGITS = Source(name="digits")


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    """Return an archive in tiny-imagenet's layout, with a single top-level folder."""
    tiny_imagenet.write(tmp_path / "made" / "tiny-imagenet-200")
    return Path(shutil.make_archive(str(tmp_path / "tiny"), "zip", tmp_path / "made"))


def left_behind(folder: Path, name: str) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.name.startswith(f".{name}.draft")]


def test_the_digits_are_those_of_scikit_learn(digits: Path) -> None:
    given = load_digits()
    for index, (pixels, label) in enumerate(zip(given.images, given.target, strict=True)):
        (path,) = digits.glob(f"*/{label}/{index:04d}.png")
        assert np.array_equal(np.rint(np.asarray(Image.open(path)) * (16 / 255)), pixels)


def test_an_intact_dataset_is_not_written_again(digits: Path, quiet: Log) -> None:
    before = digits.stat().st_ino
    prepare(DIGITS, digits, quiet)
    assert digits.stat().st_ino == before


@pytest.mark.parametrize("damage", ["missing", "changed", "manifest"])
def test_a_damaged_dataset_is_detected_and_repaired(damage: str, digits: Path, tmp_path: Path, quiet: Log) -> None:
    out = tmp_path / "digits"
    shutil.copytree(digits, out)
    victim = next((out / "train" / "3").iterdir()) if damage != "manifest" else out / "manifest.json"
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(b"not what it was")
    assert folder(DIGITS, out, quiet).problem()
    prepare(DIGITS, out, quiet)
    assert folder(DIGITS, out, quiet).problem() is None


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz", "tar"])
def test_an_archive_of_an_image_folder_is_unpacked(kind: str, digits: Path, tmp_path: Path, quiet: Log) -> None:
    file = tmp_path / f"images.{kind}"
    images = [next((digits / part / "1").iterdir()) for part in ("train", "val")]
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as stream:
            for image in images:
                stream.write(image, Path("top") / image.relative_to(digits))
    else:
        with tarfile.open(file, f"w:{kind[4:]}") as tar:  # type: ignore[call-overload]
            for image in images:
                tar.add(image, image.relative_to(digits))
    prepare(Source(uri=file.as_uri()), tmp_path / "out", quiet)
    assert len(ImageFolder(tmp_path / "out" / "train")) == 1
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == ["manifest.json", "train", "val"]
    assert not left_behind(tmp_path, "out")


def test_annotated_validation_images_are_moved_to_class_folders(zipped: Path, tmp_path: Path, quiet: Log) -> None:
    unzipped = tmp_path / "made" / "tiny-imagenet-200"
    before = ImageFolder(unzipped / "val", like=ImageFolder(unzipped / "train"))
    prepare(Source(uri=zipped.as_uri()), tmp_path / "out", quiet)
    train = ImageFolder(tmp_path / "out" / "train")
    after = ImageFolder(tmp_path / "out" / "val", like=train)
    assert {(file.name, label) for file, label in after.files} == {(file.name, label) for file, label in before.files}
    assert sorted(entry.name for entry in (tmp_path / "out" / "val").iterdir()) == sorted(tiny_imagenet.CLASSES)


@pytest.mark.parametrize("fault", ["a missing image", "an image too many"])
def test_annotations_that_do_not_match_the_images_are_refused(fault: str, tmp_path: Path, quiet: Log) -> None:
    tiny_imagenet.write(tmp_path / "made")
    images = tmp_path / "made" / "val" / "images"
    if fault == "a missing image":
        (images / "val_3.JPEG").unlink()
    else:
        shutil.copy(images / "val_3.JPEG", images / "val_99.JPEG")
    file = Path(shutil.make_archive(str(tmp_path / "tiny"), "tar", tmp_path / "made"))
    with pytest.raises(ConfigError, match=r"val_3\.JPEG|val_99\.JPEG"):
        prepare(Source(uri=file.as_uri()), tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        pytest.param("ftp://host/x", "s3://bucket/key", id="scheme"),
        pytest.param("file:///does/not/exist.zip", "does/not/exist", id="missing"),
        pytest.param(Path(__file__).as_uri(), "neither a zip nor a tar", id="no-archive"),
    ],
)
def test_an_invalid_address_is_an_error_that_names_it(uri: str, words: str, tmp_path: Path, quiet: Log) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare(Source(uri=uri), tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()
    assert not left_behind(tmp_path, "out")


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_a_truncated_archive_is_refused(kind: str, digits: Path, tmp_path: Path, quiet: Log) -> None:
    file = Path(shutil.make_archive(str(tmp_path / "images"), kind, digits))
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(ConfigError, match="damaged"):
        prepare(Source(uri=file.as_uri()), tmp_path / "out", quiet)


def test_an_archive_without_an_image_folder_is_refused(tmp_path: Path, quiet: Log) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as stream:
        stream.writestr("notes/readme.txt", "x")
    with pytest.raises(ConfigError, match="train/<class>/"):
        prepare(Source(uri=(tmp_path / "a.zip").as_uri()), tmp_path / "out", quiet)


def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path, quiet: Log) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("../../outside.png")
        tar.addfile(member, io.BytesIO())
    with pytest.raises(ConfigError, match="outside"):
        prepare(Source(uri=(tmp_path / "a.tar").as_uri()), tmp_path / "deep" / "out", quiet)
    assert not (tmp_path / "outside.png").exists()


def test_an_unknown_name_is_an_error_that_lists_the_known_names(tmp_path: Path, quiet: Log) -> None:
    with pytest.raises(ConfigError, match="use digits"):
        prepare(Source(name="cats"), tmp_path / "out", quiet)


def test_an_archive_is_downloaded_from_s3(zipped: Path, tmp_path: Path, quiet: Log, s3: Any) -> None:
    s3.upload_file(str(zipped), "there", "tiny.zip")
    prepare(Source(uri="s3://there/tiny.zip"), tmp_path / "out", quiet)
    with pytest.raises(ConfigError, match=r"s3://there/nothing"):
        prepare(Source(uri="s3://there/nothing"), tmp_path / "other", quiet)
    assert len(ImageFolder(tmp_path / "out" / "train")) == 3 * tiny_imagenet.TRAIN


@pytest.fixture
def half_served() -> Iterator[str]:
    """Yield the URL of a server that announces 1000 bytes, sends 500 and closes the connection."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 500)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/images.zip"
    server.shutdown()
    server.server_close()


def test_an_interrupted_download_is_retried(half_served: str, tmp_path: Path, quiet: Log) -> None:
    with pytest.raises(TrainerError, match="broke off after 500") as raised:
        prepare(Source(uri=half_served), tmp_path / "out", quiet)
    assert not isinstance(raised.value, ConfigError)
    assert not left_behind(tmp_path, "out")


def test_a_large_archive_is_not_read_into_memory(tmp_path: Path, quiet: Log) -> None:
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as stream:
        for part in ("train", "val"):
            stream.writestr(f"{part}/a/a.png", os.urandom(40 * 2**20))
    tracemalloc.start()
    prepare(Source(uri=(tmp_path / "large.zip").as_uri()), tmp_path / "out", quiet)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * 2**20


def test_an_archive_larger_than_the_free_space_is_refused_before_the_download(
    zipped: Path, tmp_path: Path, quiet: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    free = 2 * zipped.stat().st_size - 1
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(free, 0, free))
    monkeypatch.setattr(archive, "_next_chunk", lambda *_: pytest.fail("it was fetched"))
    with pytest.raises(ConfigError, match=r"free and .* needed"):
        prepare(Source(uri=zipped.as_uri()), tmp_path / "out", quiet)


def test_a_volume_that_fills_up_is_an_error_and_no_files_are_left(
    zipped: Path, tmp_path: Path, quiet: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(dataset, "unpack", full)
    with pytest.raises(ConfigError, match="is full"):
        prepare(Source(uri=zipped.as_uri()), tmp_path / "out", quiet)
    assert not left_behind(tmp_path, "out")


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path, quiet: Log) -> None:
    (tmp_path / ".digits.draft-abc" / "content").mkdir(parents=True)
    prepare(DIGITS, tmp_path / "digits", quiet)
    assert not left_behind(tmp_path, "digits")


def test_the_command_needs_no_torch() -> None:
    script = "import sys, tidewater.elastic.data.dataset; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[3])


def test_progress_is_reported_periodically() -> None:
    stream = io.StringIO()
    progress = Progress(Log("w", stream=stream), "dataset", "download", 10 * 2**20, every_seconds=0)
    progress.add(3 * 2**20)
    assert "event=dataset_progress doing=download mib=3 of_mib=10" in stream.getvalue()
    stream.truncate(0)
    Progress(Log("w", stream=stream), "dataset", "download").add(1)
    assert "dataset_progress" not in stream.getvalue()


def test_the_log_has_an_estimate_of_what_an_epoch_costs_on_efs(digits: Path) -> None:
    stream = io.StringIO()
    prepare(DIGITS, digits, Log("w", stream=stream))
    ready, cost = (line for line in stream.getvalue().splitlines() if "_ready" in line or "_cost" in line)
    assert "event=dataset_ready" in ready
    assert "event=dataset_cost gb_per_epoch=0 usd_per_epoch=0 " in cost
    assert "datasetStorage: s3" in cost


def test_the_estimate_is_that_of_the_whole_dataset_in_awss_gigabytes() -> None:
    assert [dataset.cost(138 * 2**30)[each] for each in ("gb_per_epoch", "usd_per_epoch")] == [138.0, 4.14]


def test_what_was_verified_is_what_is_read(digits: Path, quiet: Log) -> None:
    found = folder(DIGITS, digits, quiet)
    assert found.problem() is None
    assert found.size == sum(file.stat().st_size for file in digits.rglob("*.png")) > 0
