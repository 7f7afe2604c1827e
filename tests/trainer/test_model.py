"""Every network takes the images it is built for, in any layout and precision."""

from __future__ import annotations

import pytest
import torch

from tidewater.elastic.errors import ConfigError
from trainer.model import SmallCNN, build
from trainer.train import MODELS


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("channels", "size"), [(1, (28, 28)), (3, (64, 64))], ids=["grey-small", "colour"])
def test_every_model_gives_one_logit_per_class(name: str, channels: int, size: tuple[int, int]) -> None:
    with torch.device("meta"):
        model = build(name, channels=channels, classes=7, size=size)
        assert model(torch.empty(2, channels, *size)).shape == (2, 7)


@pytest.mark.parametrize("name", ["small-cnn", "resnet18"])
def test_a_model_trains_in_channels_last_and_bfloat16(name: str) -> None:
    model = build(name, channels=3, classes=5, size=(32, 32)).to(memory_format=torch.channels_last)
    images = torch.rand(1, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(images)
    torch.autograd.backward(logits.float().sum())
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_a_resnet_keeps_torchvisions_stem_and_names_for_colour_images() -> None:
    from torchvision import models

    with torch.device("meta"):
        ours, theirs = build("resnet18", channels=3, classes=1000, size=(224, 224)), models.resnet18()
    assert {name: value.shape for name, value in ours.state_dict().items()} == {
        name: value.shape for name, value in theirs.state_dict().items()
    }


def test_a_small_image_is_not_shrunk_to_nothing_by_a_resnets_first_layers() -> None:
    model = build("resnet18", channels=1, classes=10, size=(28, 28))
    last: list[torch.Size] = []
    model.get_submodule("layer4").register_forward_hook(lambda _, __, output: last.append(output.shape))
    model(torch.rand(1, 1, 28, 28))
    assert last == [(1, 512, 4, 4)]


def test_images_too_small_for_a_resnet_are_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"8 x 8.*--image-size 32.*small-cnn"):
        build("resnet18", channels=1, classes=10, size=(8, 8))


def test_the_small_model_takes_images_of_any_size() -> None:
    for side in (2, 8, 33):
        assert SmallCNN(1, 10)(torch.rand(2, 1, side, side)).shape == (2, 10)
