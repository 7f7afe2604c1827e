"""Handwritten digits by a training script of one's own, on workers that may come and go.

    elasticdl train --distribution_strategy=AllreduceStrategy --num_workers=4 --minibatch_size=16 --num_epochs=5 \\
      --model_zoo=examples/elasticdl --job_command="python3 digits_script.py --data /data/digits" …

The images are in folders by class, `train/3/0042.png` and `val/…`. It is ElasticDL's example for PyTorch, MNIST as
images with all-reduce: shards of record numbers come from the master, and the loop is the script's.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from elasticdl.api import Data, FixedBatchOptimizer, create_elastic_controller
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

Sample = tuple[torch.Tensor, int]


class ImageFolder(Dataset[Sample]):
    """Grey images in folders by class, in an order in which neighbours are of different classes.

    A shard is a range of numbers, so otherwise the images of an update would be of one class.
    """

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*/*.png"))
        random.Random(0).shuffle(self._files)  # the same order in all workers

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Sample:
        file = self._files[index]
        pixels = np.asarray(Image.open(file).convert("L"), np.float32) / 255
        return torch.from_numpy(pixels).unsqueeze(0), int(file.parent.name)


def network() -> nn.Module:
    """Return a small convolutional network for images of 8 x 8 pixels and more."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )


def accuracy(model: nn.Module, data: ImageFolder) -> float:
    """Return the share of right answers."""
    right = 0
    with torch.no_grad():
        for images, labels in DataLoader(data, batch_size=256):
            right += int((model(images).argmax(1) == labels).sum())
    return right / len(data)


def digest(model: nn.Module) -> str:
    """Return a digest of all bits of the parameters: equal in all workers."""
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update(value.numpy().tobytes())
    return found.hexdigest()[:16]


def main(argv: Sequence[str]) -> None:
    """Train as one worker until the job has ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train and val")
    parser.add_argument("--out", type=Path, help="file for the model")
    parser.add_argument("--in-order", action="store_true", help="take the records of a shard in their order")
    parser.add_argument("--loader-workers", type=int, default=0, help="processes that read images in advance")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each minibatch, to have time to watch")
    given = parser.parse_args(argv)
    torch.manual_seed(0)
    train, val = ImageFolder(given.data / "train"), ImageFolder(given.data / "val")
    model = network()
    optimizer = FixedBatchOptimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))

    def train_one_batch(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss

    def updated(step: int, records: int) -> None:
        print(f"update={step} records={records} workers={controller.world_size}", flush=True)

    with create_elastic_controller(Data(len(train), shuffle=not given.in_order), model, optimizer) as controller:
        controller.on_update = updated
        loader = DataLoader(train, batch_sampler=controller.batch_sampler, num_workers=given.loader_workers)
        train_elastically = controller.elastic_run(train_one_batch)
        for images, labels in controller.batches(loader):
            train_elastically(images, labels)
            time.sleep(given.pause)
    print(f"accuracy={accuracy(model, val):.4f} updates={controller.step} model={digest(model)}", flush=True)
    if given.out and controller.rank == 0:
        torch.save(model.state_dict(), given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
