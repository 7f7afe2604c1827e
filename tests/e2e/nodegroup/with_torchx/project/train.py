"""Train a small network on scikit-learn's digits with DDP, as a script that knows nothing of TorchX or this project.

    torchx run --scheduler tidewater dist.ddp -j 1:3x1 --script train.py -- --checkpoint /data/digits --until /data/stop

torchrun starts its processes anew when their number changes. They go on from the checkpoint of the last epoch.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    """Train until a file exists, and at least for the epochs that it takes to be accurate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--until", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    torch.manual_seed(0)
    distributed.init_process_group("gloo")
    train(given.checkpoint, given.until, given.epochs)
    distributed.destroy_process_group()


def train(checkpoint: Path, until: Path, epochs: int) -> None:
    """Train, and print the accuracy at the end."""
    data = digits()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    epoch = load(checkpoint, model, optimizer)
    while not (agreed(until.exists()) and epoch >= epochs):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(data, batch_size=64, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        epoch += 1
        if distributed.get_rank() == 0:
            save(checkpoint, model, optimizer, epoch)
            print(f"event=epoch epoch={epoch} world_size={distributed.get_world_size()} loss={loss:.4f}", flush=True)
        time.sleep(0.2)  # leaves the machine to the others of the cluster
    if distributed.get_rank() == 0:
        with torch.no_grad():
            right = (model(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean()
        print(f"event=finished epoch={epoch} accuracy={right:.3f}", flush=True)


def digits() -> TensorDataset:
    """Return 1797 images of 8 by 8 pixels, from 0 to 1, and the digits that they show."""
    found = load_digits()
    return TensorDataset(torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target))


def agreed(here: bool) -> bool:
    """Return what rank 0 sees: others may see the file a moment earlier or later."""
    seen = torch.tensor([int(here)])
    distributed.broadcast(seen, 0)
    return bool(seen.item())


def save(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Write the checkpoint as a whole: a process that ends here leaves the one before it."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    draft = checkpoint.with_suffix(f".{os.getpid()}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, draft)
    draft.replace(checkpoint)


def load(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the number of epochs that are done."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


if __name__ == "__main__":
    main()
