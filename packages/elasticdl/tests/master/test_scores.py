"""The metrics of an evaluation combine, and what does not combine is refused when it comes."""

from __future__ import annotations

import random
import zlib

import pytest
import torch
from elasticdl.errors import InputError
from elasticdl.master.scores import Scores
from elasticdl.zoo.metrics import AUC, Accuracy, Metrics


def new() -> Metrics:
    return Metrics({"accuracy": Accuracy(), "auc": AUC(), "mse": lambda labels, scores: (scores - labels) ** 2})


def test_parts_in_any_order_give_the_same_numbers_as_all_records_at_once() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (240,), generator=generator)
    predictions = torch.rand(240, generator=generator)
    whole = new()
    whole.update(labels, predictions)
    scores, parts = Scores(new), []
    for start in range(0, 240, 7):
        part = new()
        part.update(labels[start : start + 7], predictions[start : start + 7])
        parts.append(scores.packed({"metrics": part.to_json().encode()}))
    random.Random(1).shuffle(parts)
    assert scores.combined(parts) == pytest.approx(whole.compute())


@pytest.mark.parametrize(
    "states",
    [
        {},
        {"metrics": b"no JSON"},
        {"metrics": b"5"},
        {"metrics": b'{"accuracy": {}}'},
        {"metrics": b'{"accuracy": {}, "auc": {}, "mse": {}}'},
        {"metrics": b'{"other": {"right": 1, "count": 2}}'},
    ],
    ids=["none", "no-json", "no-mapping", "some", "without-content", "others"],
)
def test_metrics_that_do_not_combine_are_refused(states: dict[str, bytes]) -> None:
    with pytest.raises(InputError, match="the metrics of a worker can't be used"):
        Scores(new).packed(states)


def test_metrics_are_stored_compressed() -> None:
    part = new()
    part.update(torch.zeros(4096, dtype=torch.int64), torch.rand(4096))
    text = part.to_json().encode()
    packed = Scores(new).packed({"metrics": text})
    assert len(packed) < len(text) / 2
    assert zlib.decompress(packed)
