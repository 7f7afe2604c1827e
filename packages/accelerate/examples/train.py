"""A script as Accelerate's examples are, for a job that may gain and lose workers.

Two of its lines differ from those of a script for Accelerate: the import, and `parse_args(parser)`, which leaves the
runtime's flags out.

    tidewater run --workers 2 train.py --num_epochs 3
"""

import argparse

import torch
from tidewater_accelerate import Accelerator, parse_args
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

Loader = DataLoader[tuple[torch.Tensor, ...]]


def get_dataloaders(batch_size: int) -> tuple[Loader, Loader]:
    """Return loaders of points in two classes: those that train, and those that evaluate."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(1000, 8, generator=generator)
    labels = (points.sum(1) > 0).long()
    train, evaluation = TensorDataset(points[:800], labels[:800]), TensorDataset(points[800:], labels[800:])
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(evaluation, batch_size=batch_size)


def training_function(args: argparse.Namespace) -> None:
    """Train and evaluate."""
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision, gradient_accumulation_steps=args.gradient_accumulation_steps
    )
    train_dataloader, eval_dataloader = get_dataloaders(args.batch_size)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = len(train_dataloader) * args.num_epochs // args.gradient_accumulation_steps
    lr_scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )

    for epoch in range(args.num_epochs):
        model.train()
        for points, labels in train_dataloader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(points), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()

        model.eval()
        correct = total = 0
        for points, labels in eval_dataloader:
            with torch.no_grad():
                predictions = model(points).argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, labels))
            correct += (predictions == references).sum().item()
            total += len(references)
        accelerator.print(f"epoch {epoch}: {100 * correct / total:.1f} % of {total}")

    accelerator.wait_for_everyone()
    if args.output_dir is not None:
        accelerator.save_model(model, args.output_dir)
    accelerator.end_training()


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description="Example of a training script with Accelerate.")
    parser.add_argument("--mixed_precision", choices=["no", "bf16"], default=None)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--output_dir", default=None)
    training_function(parse_args(parser))


if __name__ == "__main__":
    main()
