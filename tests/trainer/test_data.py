"""Images come as they are stored, whatever the layout and the decoder."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

from tests.trainer import tiny_imagenet
from tidewater.elastic.data import folders
from tidewater.elastic.errors import ConfigError
from trainer.data import ImageFolder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiny")
    tiny_imagenet.write(root)
    return root


def test_the_digits_are_image_files_in_ten_classes(digits: Path) -> None:
    train = ImageFolder(digits / "train")
    val = ImageFolder(digits / "val", like=train)
    assert train.classes == val.classes == tuple("0123456789")
    assert len(train) + len(val) == 1797
    image, label = train[len(train) - 1]
    assert (image.shape, image.dtype, label) == ((1, 8, 8), torch.uint8, 9)


@pytest.mark.parametrize("which", ["digits", "tiny"])
def test_files_and_labels_are_those_of_torchvision(which: str, digits: Path, tiny: Path) -> None:
    root = (digits if which == "digits" else tiny) / "train"
    ours, theirs = ImageFolder(root), datasets.ImageFolder(str(root))
    assert list(ours.classes) == theirs.classes
    assert [(str(file), label) for file, label in ours.files] == theirs.samples


def test_validation_images_are_labelled_by_their_annotations(tiny: Path) -> None:
    train = ImageFolder(tiny / "train")
    val = ImageFolder(tiny / "val", like=train)
    assert len(train) == 3 * tiny_imagenet.TRAIN
    labels = dict(folders.annotated(tiny / "val"))
    assert len(val) == len(labels) == 3 * tiny_imagenet.VAL
    assert all(train.classes[label] == labels[file.name] for file, label in val.files)
    assert val[0][0].shape == (3, tiny_imagenet.SIDE, tiny_imagenet.SIDE)


@pytest.mark.parametrize("memory_mib", [0, 1])
def test_pixels_are_those_of_the_file_in_memory_or_not(memory_mib: int, digits: Path) -> None:
    folder = ImageFolder(digits / "train", memory_mib=memory_mib)
    with Image.open(folder.files[3][0]) as image:
        expected = np.asarray(image)
    for _ in range(2):
        assert (folder[3][0].numpy() == expected).all()


def test_a_small_dataset_is_decoded_once_for_all_processes(digits: Path, tmp_path: Path) -> None:
    root = tmp_path / "train" / "0"
    root.mkdir(parents=True)
    file = root / "a.png"
    file.write_bytes(next((digits / "train" / "0").iterdir()).read_bytes())
    folder = ImageFolder(root.parent, memory_mib=1)
    child = multiprocessing.get_context("fork").Process(target=folder.pixels, args=(0,))
    child.start()
    child.join()
    expected = np.asarray(Image.open(file))
    file.unlink()
    assert (folder.pixels(0)[..., 0] == expected).all()


def test_a_large_dataset_is_not_kept_in_memory(tiny: Path) -> None:
    folder = ImageFolder(tiny / "train", memory_mib=0)
    assert folder.pixels(0) is not folder.pixels(0)
    assert not np.shares_memory(folder.pixels(0), folder.pixels(0))


def test_images_of_other_sizes_and_modes_come_in_their_size_and_in_the_first_ones_mode(tmp_path: Path) -> None:
    for index, (mode, size) in enumerate([("RGB", (8, 6)), ("L", (10, 4)), ("RGBA", (3, 3)), ("P", (8, 6))]):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.new(mode, size, 7).save(tmp_path / "a" / f"{index}.png")
    folder = ImageFolder(tmp_path, memory_mib=1)
    for _ in range(2):
        assert [tuple(image.shape) for image, _ in map(folder.__getitem__, range(4))] == [
            (3, 6, 8),
            (3, 4, 10),
            (3, 3, 3),
            (3, 6, 8),
        ]


def test_the_digest_changes_with_a_name_and_with_a_label(tmp_path: Path) -> None:
    digests = set()
    for names in (("a/1", "b/2"), ("a/1", "b/3"), ("a/1", "a/2")):
        root = tmp_path / "-".join(names).replace("/", "")
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (2, 2)).save(root / f"{name}.png")
        digests.add(ImageFolder(root).digest)
    assert len(digests) == 3


def test_a_folder_without_images_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trainer dataset"):
        ImageFolder(tmp_path)
    with pytest.raises(ConfigError, match="trainer dataset"):
        ImageFolder(tmp_path / "nothing")


def test_a_damaged_image_is_an_error_that_names_it(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    good = next((digits / "train" / "0").iterdir()).read_bytes()
    (tmp_path / "0" / "a.png").write_bytes(good)
    (tmp_path / "0" / "b.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "0" / "c.png").write_bytes(b"no image")
    folder = ImageFolder(tmp_path)
    for index, name in ((1, "b.png"), (2, "c.png")):
        with pytest.raises(ConfigError, match=name):
            folder[index]


def test_a_validation_class_that_training_lacks_is_an_error_that_names_it(digits: Path, tmp_path: Path) -> None:
    train = ImageFolder(digits / "train")
    (tmp_path / "cat").mkdir()
    with pytest.raises(ConfigError, match="cat"):
        ImageFolder(tmp_path, like=train)
    (tmp_path / folders.ANNOTATIONS).write_text("a.png\tdog\n")
    with pytest.raises(ConfigError, match="dog"):
        ImageFolder(tmp_path, like=train)


@pytest.mark.parametrize("line", ["a.png", "a.png\t", "../a.png\tn1", "a.png\t..", "\tn1"])
def test_a_line_of_the_annotations_that_is_none_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    (tmp_path / folders.ANNOTATIONS).write_text(f"b.png\tn1\t0\n{line}\n")
    with pytest.raises(ConfigError, match="line 2"):
        folders.annotated(tmp_path)
