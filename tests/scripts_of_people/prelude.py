"""What all these scripts begin and end with: imports, a small data set, and the call of the runtime."""

from __future__ import annotations

PRELUDE = """
import collections
import copy
import math
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import tidewater


class Points(torch.utils.data.Dataset):
    def __init__(self, count=109, width=8, classes=3, seed=1):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, width, generator=generator)
        self.y = self.x[:, :classes].argmax(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count=109, length=12, words=16):
        self.tokens = torch.randint(words, (count, length), generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def classify(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def mlp(width=8, classes=3):
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, classes))

"""
END = """

if __name__ == "__main__":
    raise SystemExit(tidewater.run(training))
"""


def whole(script: str) -> str:
    """Return a script that runs."""
    return f"{PRELUDE}{script}{END}"
