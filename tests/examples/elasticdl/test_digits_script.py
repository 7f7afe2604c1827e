"""The example's data: the same order in all workers, neighbours of different classes."""

from __future__ import annotations

from pathlib import Path

from examples.elasticdl.digits_script import ImageFolder, digest, network


def test_any_range_of_numbers_has_images_of_most_classes(digits: Path) -> None:
    data = ImageFolder(digits / "train")
    assert len({data[index][1] for index in range(64)}) >= 8
    image, _ = data[0]
    assert image.shape == (1, 8, 8)
    assert 0.0 <= float(image.min()) <= float(image.max()) <= 1.0


def test_all_workers_have_the_same_order(digits: Path) -> None:
    one, other = ImageFolder(digits / "train"), ImageFolder(digits / "train")
    assert [one[index][1] for index in range(50)] == [other[index][1] for index in range(50)]


def test_models_that_differ_in_one_number_have_different_digests() -> None:
    model = network()
    before = digest(model)
    assert digest(model) == before
    next(model.parameters()).data[0] += 1e-6
    assert digest(model) != before
