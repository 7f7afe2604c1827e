"""Classes and order of images follow from their paths, the same everywhere."""

from __future__ import annotations

import random

import pytest
from elasticdl.data.images.layout import Choice, arranged
from elasticdl.errors import DataError

PETS = [f"{pet}/{number}.png" for pet in ("dog", "cat", "ape") for number in range(50)]


def labels(paths: list[str], choice: Choice | None = None) -> dict[str, int | None]:
    return {image.path: image.label for image in arranged("/data", paths, choice or Choice()).images}


def test_a_label_is_the_place_of_the_class_among_all() -> None:
    assert arranged("/data", PETS, Choice()).classes == ("ape", "cat", "dog")
    assert labels(PETS) == {path: {"a": 0, "c": 1, "d": 2}[path[0]] for path in PETS}


def test_the_order_is_the_same_however_files_are_listed() -> None:
    shuffled = random.Random(1).sample(PETS, len(PETS))
    assert arranged("/data", PETS, Choice()) == arranged("/other", shuffled, Choice())


def test_a_task_holds_a_mixture_of_classes() -> None:
    images = arranged("/data", PETS, Choice()).images
    assert all({image.label for image in images[start : start + 25]} == {0, 1, 2} for start in range(0, 150, 25))


@pytest.mark.parametrize("prefix", ["pets", "a/b", "."])
def test_folders_above_the_classes_do_not_count(prefix: str) -> None:
    below = [path if prefix == "." else f"{prefix}/{path}" for path in PETS]
    layout = arranged("/data", below, Choice())
    assert layout.classes == ("ape", "cat", "dog")
    order = [image.path for image in arranged("/data", PETS, Choice()).images]
    assert [image.path.removeprefix(f"{prefix}/") for image in layout.images] == order


def test_folders_below_the_class_do_not_count() -> None:
    assert labels(["cat/young/1.png", "dog/2.png"]) == {"cat/young/1.png": 0, "dog/2.png": 1}


def test_one_class_alone_is_a_class() -> None:
    assert labels(["cat/1.png", "cat/2.png"]) == {"cat/1.png": 0, "cat/2.png": 0}


def test_images_in_no_folder_have_no_label() -> None:
    assert labels(["1.png", "2.JPG", "notes.txt", ".hidden.png"]) == {"1.png": None, "2.JPG": None}


def test_a_root_chooses_one_part() -> None:
    paths = [f"set/{part}/{path}" for part in ("train", "val") for path in PETS]
    found = labels(paths, Choice(root="set/val"))
    assert found["set/val/cat/3.png"] == 1
    assert len(found) == len(PETS)


def test_given_classes_fix_the_labels() -> None:
    assert labels(["dog/1.png"], Choice(classes=("ape", "cat", "dog"))) == {"dog/1.png": 2}


@pytest.mark.parametrize(
    ("paths", "choice", "said"),
    [
        pytest.param(["a.txt"], Choice(), r"holds no images \(.png", id="no-images"),
        pytest.param(PETS, Choice(root="none"), "150 images, none of them in none/", id="no-root"),
        pytest.param(["cat/1.png", "2.png"], Choice(), r"in folders \(cat\) and images in none \(2.png\)", id="loose"),
        pytest.param(["train/a/1.png", "val/a/1.png"], Choice(), "parts of a dataset and no classes", id="parts"),
        pytest.param(PETS, Choice(classes=("cat", "dog")), "not in classes: ape", id="strange-class"),
    ],
)
def test_what_is_no_layout_is_named(paths: list[str], choice: Choice, said: str) -> None:
    with pytest.raises(DataError, match=f"/data.*{said}") as caught:
        arranged("/data", paths, choice)
    assert caught.value.remedy
