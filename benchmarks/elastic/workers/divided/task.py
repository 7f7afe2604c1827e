"""The task of the scripts with a divided model: a small transformer made from its sizes, random texts, the loss.

Each script divides it among PROCESSES processes with ``fully_shard``: layer by layer, then the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from benchmarks.elastic.workers import names

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

WORDS, LENGTH, TEXTS = 1000, 8, 960
WIDTH, LAYERS, HEADS = 768, 4, 8
SEED, LR = 0, 1e-4


class Texts(Dataset["Tensor"]):
    """Random texts of LENGTH words and the word after each of these, in memory."""

    def __init__(self) -> None:
        self._texts = torch.randint(WORDS, (TEXTS, LENGTH + 1), generator=torch.Generator().manual_seed(SEED))

    def __len__(self) -> int:
        return TEXTS

    def __getitem__(self, index: int) -> Tensor:
        return self._texts[index]


class Language(nn.Module):
    """A transformer of 30 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(LAYERS)
        )
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, texts: Tensor) -> Tensor:
        """Return the logits of each text's next words."""
        hidden = self.words(texts)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: Tensor = self.out(hidden)
        return logits


def model(mesh: DeviceMesh) -> Language:
    """Return the model, divided among the processes of the mesh, with the same initial weights everywhere."""
    torch.manual_seed(SEED)
    made = Language()
    for layer in made.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(made, mesh=mesh)
    return made


def optimizer_of(network: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of all the scripts."""
    return torch.optim.AdamW(network.parameters(), lr=LR)


def loss_of(network: nn.Module, texts: Tensor) -> Tensor:
    """Return the mean cross entropy of the next words."""
    return cross_entropy(network(texts[:, :-1]).flatten(0, 1), texts[:, 1:].flatten())


def passes(network: nn.Module, texts: Tensor) -> Any:
    """Make the passes of a process for its share of a step, MICRO_BATCH texts at a time. Return the mean loss."""
    total = torch.zeros(())
    parts: tuple[Tensor, ...] = torch.split(texts, names.MICRO_BATCH)
    for part in parts:
        loss = loss_of(network, part) * (len(part) / len(texts))
        torch.autograd.backward(loss)
        total += loss.detach()
    return total
