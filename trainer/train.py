"""The training script that comes with the stack: image classification.

    python -m trainer.train --data /data/digits …
    python -m trainer.train --data /data/tiny-imagenet --model resnet18 --optimizer sgd --batch-size 256 \\
        --amp bf16 --channels-last --data-workers 4 …

``--data`` contains ``train`` and ``val`` in ImageFolder layout. This script does nothing that a user's own script could
not do: see ``tidewater.elastic.training`` for what the runtime needs from a script.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidewater import Config, ConfigError, Training, run
from tidewater.contract import env

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trainer.data import ImageFolder

MODELS = ("small-cnn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
SCHEDULES = ("cosine", "step", "constant")

_LARGEST_OWN_SIZE = 224
_MOMENTUM = 0.9
_LR = {"adamw": 2e-3, "sgd": 0.1}
_SGD_BATCH = 256
_WEIGHT_DECAY = {"adamw": 0.01, "sgd": 1e-4}
_WARMUP_FLOOR = 0.01

Batch = tuple["torch.Tensor", "torch.Tensor"]


def flags(group: argparse._ArgumentGroup) -> None:
    """Add this script's flags. Their values are in ``config.user``."""
    group.add_argument("--model", choices=MODELS, default=MODELS[0], help="a ResNet is torchvision's, fitted to --data")
    group.add_argument(
        "--image-size", type=int, default=0, metavar="PIXELS", help="0: the first image's own, and 224 at most"
    )
    group.add_argument(
        "--augment",
        choices=("auto", "shift", "standard", "none"),
        default="auto",
        help="how training images are varied. shift: by an eighth, for digits and the like; standard: random crop, "
        "resized, and mirrored, as usual for photographs; auto: shift for small-cnn, standard for a ResNet",
    )
    group.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw", help="sgd has a momentum of 0.9")
    group.add_argument(
        "--lr",
        type=number,
        default="auto",
        metavar="RATE",
        help="auto: 2e-3 for adamw, 0.1 per 256 of --batch-size for sgd",
    )
    group.add_argument(
        "--weight-decay", type=number, default="auto", metavar="FACTOR", help="auto: 0.01 for adamw, 1e-4 for sgd"
    )
    group.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default="cosine",
        help="of the learning rate. cosine: falls to 0; step: a tenth after each third of training; constant: stays",
    )
    group.add_argument(
        "--warmup-epochs", type=float, default=0.0, metavar="EPOCHS", help="over which the learning rate rises at first"
    )
    group.add_argument(
        "--channels-last", action="store_true", help="memory layout that tensor cores like; use it with --amp"
    )
    group.add_argument(
        "--cache-mib",
        type=int,
        default=512,
        metavar="MIB",
        help="training and validation images stay in memory, decoded, if they take no more than this each",
    )


def number(text: str) -> float | None:
    """Return a number, or None for ``auto``."""
    return None if text == "auto" else float(text)


def training(config: Config) -> Training:
    """Return the training that the command line describes. Raise ConfigError."""
    import torch
    from torch.nn import functional

    from trainer.model import build

    problems = _problems(config)
    if problems:
        raise ConfigError("; ".join(problems))
    user = config.user
    train, val, size = _data(config)
    model = build(user.model, channels=train.channels, classes=len(train.classes), size=size)
    layout = torch.channels_last if user.channels_last else torch.contiguous_format
    if user.channels_last:
        model = model.to(memory_format=layout)

    def logits(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        # Images stay bytes until they are on the device, which is a quarter of the data to copy.
        scaled = images.contiguous(memory_format=layout).float().div_(127.5).sub_(1)
        answer: torch.Tensor = model(scaled)
        return answer

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        images, labels = batch
        return functional.cross_entropy(logits(model, images), labels)

    def right(model: nn.Module, batch: Batch) -> torch.Tensor:
        images, labels = batch
        return (logits(model, images).argmax(1) == labels).sum()

    return Training(
        model=model,
        optimizer=_optimizer(config, model),
        dataset=train,
        loss=loss,
        schedule=schedule(user.schedule, warmup=user.warmup_epochs / config.epochs),
        validation=val,
        score=right,
    )


def schedule(kind: str, *, warmup: float) -> Callable[[float], float]:
    """Return the factor on the learning rate by the progress of training; ``warmup`` is the share in which it rises."""

    def factor(progress: float) -> float:
        if progress < warmup:
            return _WARMUP_FLOOR + (1 - _WARMUP_FLOOR) * progress / warmup
        rest = (progress - warmup) / (1 - warmup)
        if kind == "cosine":
            return (1 + math.cos(math.pi * min(rest, 1.0))) / 2
        return 0.1 ** min(int(3 * rest), 2) if kind == "step" else 1.0

    return factor


def _problems(config: Config) -> list[str]:
    user = config.user
    problems = []
    if str(config.data) == ".":
        problems.append(f"--data (or {env.DATA}) is required")
    if user.lr is not None and not user.lr > 0:
        problems.append(f"--lr is {user.lr:g}, it must be greater than 0")
    if user.weight_decay is not None and not user.weight_decay >= 0:
        problems.append(f"--weight-decay is {user.weight_decay:g}, the least is 0")
    if user.image_size < 0:
        problems.append(f"--image-size is {user.image_size}, the least is 1, or 0 for the images' own")
    if not 0 <= user.warmup_epochs < config.epochs:
        problems.append(f"--warmup-epochs is {user.warmup_epochs:g}, it must be less than --epochs, {config.epochs}")
    return problems


def _data(config: Config) -> tuple[ImageFolder, ImageFolder, tuple[int, int]]:
    """Return the training images, the validation images, and their size."""
    from trainer import augment
    from trainer.data import ImageFolder

    user = config.user
    train = ImageFolder(config.data / "train", memory_mib=user.cache_mib)
    val = ImageFolder(config.data / "val", like=train, memory_mib=user.cache_mib)
    own = train.size if max(train.size) <= _LARGEST_OWN_SIZE else (_LARGEST_OWN_SIZE, _LARGEST_OWN_SIZE)
    size = (user.image_size, user.image_size) if user.image_size else own
    kind = user.augment
    if kind == "auto":
        kind = "shift" if user.model == MODELS[0] else "standard"
    train.transform, val.transform = augment.training(kind, size), augment.validation(kind, size)
    return train, val, size


def _optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    import torch

    user = config.user
    decay = _WEIGHT_DECAY[user.optimizer] if user.weight_decay is None else user.weight_decay
    if user.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=user.lr or _LR["adamw"], weight_decay=decay)
    lr = user.lr or _LR["sgd"] * config.batch_size / _SGD_BATCH
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=_MOMENTUM, weight_decay=decay)


if __name__ == "__main__":
    raise SystemExit(run(training, flags=flags))
