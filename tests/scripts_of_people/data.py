"""Data as people have it: `datasets.Dataset` with a collator that pads and masks, and torchdata's loader."""

from __future__ import annotations

SCRIPTS: dict[str, str] = {}

SCRIPTS["masked_text"] = """
import datasets


class Encoding(collections.UserDict):
    # as transformers' BatchEncoding
    def __getattr__(self, name):
        if name == "data":
            raise AttributeError(name)
        return self.data[name]

    def to(self, device):
        return type(self)({name: value.to(device) for name, value in self.data.items()})


class Collator:
    # as DataCollatorForLanguageModeling: pads to the longest of the batch, and hides some of the words
    def __init__(self, share):
        self.share = share

    def __call__(self, rows):
        words = [row["input_ids"] for row in rows]
        words = nn.utils.rnn.pad_sequence(words, batch_first=True, padding_value=0)
        hidden = (torch.rand(words.shape) < self.share) & (words > 0)
        return Encoding(input_ids=words.masked_fill(hidden, 16), labels=words.masked_fill(~hidden, -100))


def loss(model, batch):
    scores = model(batch.input_ids).transpose(1, 2)
    total = F.cross_entropy(scores, batch["labels"], ignore_index=-100, reduction="sum")
    return total, (batch.labels != -100).sum()


def training(config):
    model = nn.Sequential(nn.Embedding(17, 8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 17))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    texts = [[1 + (index * word) % 15 for word in range(2, 4 + index % 9)] for index in range(109)]
    rows = datasets.Dataset.from_dict({"input_ids": texts}).with_format("torch")
    return tidewater.Training(model=model, optimizer=optimizer, dataset=rows, collate=Collator(0.3), loss=loss)
"""

SCRIPTS["torchdata"] = """
import dataclasses

from torchdata.stateful_dataloader import StatefulDataLoader


class Lines(torch.utils.data.IterableDataset):
    def __init__(self):
        self.points, self.place = Points(), 0

    def __iter__(self):
        while self.place < len(self.points):
            self.place += 1
            yield self.points[self.place - 1]
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor


def collate(samples):
    x, y = zip(*samples)
    return Batch(torch.stack(x) + 0.01 * torch.randn(len(x), 1), torch.stack(y))


def training(config):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    lines = StatefulDataLoader(Lines(), batch_size=None, snapshot_every_n_steps=3)
    loss = lambda model, batch: F.cross_entropy(model(batch.x), batch.y)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=lines, collate=collate, loss=loss)
"""
