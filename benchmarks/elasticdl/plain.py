"""The benchmark's model in a training loop as torch's tutorials have it: one process, no master, no servers.

    python -m benchmarks.elasticdl.plain '{"training_data": …}'

It reads the same files by the same reader, calls the same `feed`, and logs the same lines. Its tables are torch's own.
"""

from __future__ import annotations

import itertools
import sys
import time
from datetime import datetime

import torch
from elasticdl.data.opening import open_reader
from elasticdl.data.params import parse_params
from elasticdl.job import JobArgs
from elasticdl.worker.assembly import spec_of
from elasticdl.zoo.spec import Mode
from torch import nn

IDS = 4096
"""More than the data has users or items."""


class Plain(nn.Module):
    """`paced.Paced` with torch's tables."""

    def __init__(self, hidden: int, pause: float) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(IDS, 16), nn.Embedding(IDS, 16)
        self.deep = nn.Sequential(nn.Linear(33, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, 1)
        self._pause = pause

    def forward(self, features: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return one number for each sample."""
        if self._pause:
            time.sleep(self._pause)
        user, item = self.user(features["user"]), self.item(features["item"])
        deep = self.deep(torch.cat([user, item, features["fresh"].unsqueeze(-1)], dim=-1))
        result: torch.Tensor = self.out(deep).squeeze(-1) + (user * item).sum(-1)
        return result


def main(text: str) -> None:
    """Train as a job with these arguments would."""
    args = JobArgs.from_json(text)
    spec, params = spec_of(args), parse_params("--model_params", args.model_params)
    torch.manual_seed(args.seed)
    model = Plain(params.get("hidden", 300), params.get("pause", 0.0))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=spec.optimizer.lr)
    step = 0
    with open_reader(args.training_data) as reader:
        for _ in range(args.num_epochs):
            records = itertools.chain.from_iterable(reader.read(shard) for shard in reader.shards())
            while taken := list(itertools.islice(records, args.minibatch_size)):
                batch = spec.feed(taken, Mode.TRAINING, reader.metadata)
                optimizer.zero_grad()
                loss = spec.loss(batch.labels, model(batch.features))
                loss.backward()  # type: ignore[no-untyped-call] # torch doesn't annotate it
                optimizer.step()
                step += 1
                if step % args.log_loss_steps == 0:
                    at = datetime.now().isoformat(sep=" ", timespec="milliseconds").replace(".", ",")
                    print(f"[{at}] [INFO] Loss: {loss.item():.4g} step={step}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
