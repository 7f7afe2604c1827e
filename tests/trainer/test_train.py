"""The script for images: its flags do what they say, and what it builds learns."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.trainer import tiny_imagenet
from tidewater.elastic.config import Config
from tidewater.elastic.data.loader import Loader, LoaderSettings, Place
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.data.seeds import seed_generators
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.flags import parser
from tidewater.elastic.training import Training
from trainer import augment
from trainer import train as images

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiny")
    tiny_imagenet.write(root)
    return root


def config(data: Path | str, *arguments: str) -> Config:
    given = ["--job", "a", "--etcd", "http://x", "--checkpoints", "c", "--data", str(data), *arguments]
    return Config.parse(given, {}, flags=images.flags)


def made(data: Path, *arguments: str) -> Training:
    torch.manual_seed(0)
    return images.training(config(data, *arguments))


def run(training: Training, *, epochs: int, batch_size: int, amp: bool = False) -> list[float]:
    """Train as one rank, as plainly as can be; the losses of the epochs."""
    optimizer: Any = training.optimizer
    loader = Loader(training.dataset, LoaderSettings(seed=0), collate=training.collate, device=CPU)
    loader.start(Place(Cursor(), 0, 1, batch_size, epochs))
    rates = [group["lr"] for group in optimizer.param_groups]
    losses, cursor, total = [0.0] * epochs, Cursor(), len(training.dataset)  # type: ignore[arg-type]
    while cursor.epoch < epochs:
        factor = training.schedule((cursor.epoch + cursor.offset / total) / epochs)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        prepared = loader.next()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            loss: Any = training.loss(training.model, prepared.micro[0].batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses[cursor.epoch] += float(loss.detach()) * len(prepared.step.samples) / total
        cursor = prepared.step.after
    loader.close()
    return losses


@pytest.mark.e2e
def test_a_resnet_learns_tiny_imagenet_in_channels_last_and_bfloat16(tiny: Path) -> None:
    flags = ("--model", "resnet18", "--channels-last", "--optimizer", "sgd", "--lr", "0.02", "--augment", "none")
    training = made(tiny, *flags, "--schedule", "constant", "--epochs", "2", "--image-size", "40")
    losses = run(training, epochs=2, batch_size=16, amp=True)
    assert losses[-1] < losses[0] / 2
    assert training.model.get_parameter("conv1.weight").is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", augment.KINDS)
def test_a_training_image_depends_on_seed_epoch_and_sample_and_not_on_who_prepares_it(kind: str, tiny: Path) -> None:
    training = made(tiny, "--augment", kind, "--image-size", "32")
    loaders = [Loader(training.dataset, LoaderSettings(1, workers=n), collate=None, device=CPU) for n in (0, 2)]
    try:
        for loader in loaders:
            loader.start(Place(Cursor(1, 0), 0, 1, 12, 2))
        for _ in range(4):
            batches = [loader.next().micro[0].batch for loader in loaders]
            assert batches[0][0].shape == (12, 3, 32, 32)
            assert batches[0][0].dtype == torch.uint8
            assert torch.equal(batches[0][0], batches[1][0])
        first, again, later = (loaders[0].batch((5,), epoch)[0] for epoch in (0, 0, 1))
        assert torch.equal(first, again)
        assert torch.equal(first, later) == (kind == "none")
    finally:
        for loader in loaders:
            loader.close()


def test_a_shift_moves_by_an_eighth_at_most_and_brings_in_black() -> None:
    image = torch.full((1, 16, 16), 9, dtype=torch.uint8)
    seen = set()
    for epoch in range(200):
        seed_generators(0, epoch, 0)
        moved = augment.shifted(image)
        rows, columns = ((moved[0] > 0).any(1), (moved[0] > 0).any(0))
        assert moved.sum() == 9 * int(rows.sum()) * int(columns.sum())
        seen.add((int(rows.sum()), int(columns.sum())))
    assert seen == {(rows, columns) for rows in (14, 15, 16) for columns in (14, 15, 16)}


@pytest.mark.parametrize("kind", augment.KINDS)
def test_validation_images_do_not_vary(kind: str) -> None:
    image = torch.arange(3 * 40 * 30, dtype=torch.int64).reshape(3, 40, 30).to(torch.uint8)
    transform = augment.validation(kind, (24, 24))
    assert transform(image).shape == (3, 24, 24)
    assert torch.equal(transform(image), transform(image))


def test_images_of_any_size_are_brought_to_the_first_ones(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for index, size in enumerate([(20, 16), (300, 200), (5, 9)]):
            (tmp_path / part / str(index)).mkdir(parents=True)
            Image.new("RGB", size, (index, 2, 3)).save(tmp_path / part / str(index) / "a.png")
    for kind in augment.KINDS:
        training = made(tmp_path, "--augment", kind)
        for data in (training.dataset, training.validation):
            assert data is not None
            assert [tuple(data[index][0].shape) for index in range(3)] == [(3, 16, 20)] * 3


def test_large_images_are_made_224_pixels_wide_and_high_unless_told_otherwise(tmp_path: Path) -> None:
    for part in ("train", "val"):
        (tmp_path / part / "a").mkdir(parents=True)
        Image.new("RGB", (500, 300)).save(tmp_path / part / "a" / "a.jpg")
    assert made(tmp_path).dataset[0][0].shape == (3, 224, 224)
    assert made(tmp_path, "--image-size", "96").dataset[0][0].shape == (3, 96, 96)


def test_pixels_reach_the_model_between_minus_one_and_one(digits: Path) -> None:
    training = made(digits, "--augment", "none")
    seen: list[torch.Tensor] = []

    class Listener(torch.nn.Module):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            seen.append(given)
            return torch.zeros(len(given), 10)

    data: Any = training.dataset
    training.loss(Listener(), (torch.stack([data[0][0], data[700][0]]), torch.tensor([0, 1])))
    assert (float(seen[0].min()), float(seen[0].max())) == (-1, 1)


@pytest.mark.parametrize(
    ("flags", "kind", "rate", "decay"),
    [
        pytest.param((), torch.optim.AdamW, 2e-3, 0.01, id="default"),
        pytest.param(("--optimizer", "sgd", "--batch-size", "512"), torch.optim.SGD, 0.2, 1e-4, id="sgd"),
        pytest.param(("--lr", "0.5", "--weight-decay", "0"), torch.optim.AdamW, 0.5, 0, id="given"),
    ],
)
def test_the_optimizer_is_as_the_flags_say(
    flags: tuple[str, ...], kind: type, rate: float, decay: float, digits: Path
) -> None:
    optimizer: Any = made(digits, *flags).optimizer
    (group,) = optimizer.param_groups
    assert isinstance(optimizer, kind)
    assert (group["lr"], group["weight_decay"]) == (pytest.approx(rate), decay)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("cosine", [1.0, (1 + math.cos(math.pi / 4)) / 2, 0.5, 0.0]),
        ("step", [1.0, 1.0, 0.1, 0.01]),
        ("constant", [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_a_schedule_starts_at_one_and_ends_as_it_says(kind: str, expected: list[float]) -> None:
    factor = images.schedule(kind, warmup=0)
    assert [factor(progress) for progress in (0, 0.25, 0.5, 1)] == pytest.approx(expected)


@pytest.mark.parametrize("kind", images.SCHEDULES)
def test_a_warm_up_rises_from_almost_nothing_to_the_full_rate(kind: str) -> None:
    factor = images.schedule(kind, warmup=0.2)
    rising = [factor(step / 100) for step in range(21)]
    assert rising == sorted(rising)
    assert 0 < rising[0] < 0.05
    assert rising[-1] == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--lr", "0"), "--lr is 0"),
        (("--lr", "nan"), "--lr is nan"),
        (("--weight-decay", "-1"), "--weight-decay is -1"),
        (("--image-size", "-5"), "--image-size is -5"),
        (("--warmup-epochs", "30"), "--warmup-epochs is 30"),
        (("--model", "resnet18", "--image-size", "8"), "--image-size 32"),
    ],
)
def test_a_bad_flag_is_an_error_that_names_it(flags: tuple[str, ...], words: str, digits: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        made(digits, *flags)


def test_data_is_required() -> None:
    with pytest.raises(ConfigError, match="--data"):
        images.training(Config.parse(["--job", "a", "--etcd", "http://x", "--checkpoints", "c"], {}, images.flags))


def test_every_flag_is_explained_in_the_help() -> None:
    text = parser({}, images.flags).format_help()
    for flag in ("--model", "--image-size", "--augment", "--optimizer", "--lr", "--weight-decay", "--schedule"):
        assert flag in text
    assert "default: None" not in text


@pytest.fixture
def no_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real: Callable[..., Any] = builtins.__import__

    def refuse(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("torchvision"):
            raise AssertionError("torchvision takes a second to import")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)


@pytest.mark.usefixtures("no_torchvision")
def test_the_default_on_images_of_one_size_does_not_wait_for_torchvision(digits: Path) -> None:
    training = made(digits)
    data: Any = training.dataset
    loss: Any = training.loss(training.model, (data[0][0][None], torch.tensor([0])))
    assert loss.isfinite()
