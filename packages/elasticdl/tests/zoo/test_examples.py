"""The examples that `zoo init` writes learn what they are for, by nothing but their functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from elasticdl.data.examples.fields import encode
from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Metadata
from elasticdl.data.writing.convert import Options, write
from elasticdl.data.writing.sources import Asked
from elasticdl.embedding_init import Table
from elasticdl.layers import LocalTables, RowGradient, attach, collect_gradients, tables
from elasticdl.zoo.load import load
from elasticdl.zoo.project import InitOptions, init
from elasticdl.zoo.spec import Batch, Mode, ModelSpec


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let torch use one thread: the models are so small that threads only wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def batches(spec: ModelSpec, address: Path, mode: Mode) -> Iterator[Batch]:
    with open_reader(str(address)) as reader:
        records = [record for shard in reader.shards() for record in reader.read(shard)]
        for start in range(0, len(records), 64):
            yield spec.feed(records[start : start + 64], mode, reader.metadata)


def measured(spec: ModelSpec, model: torch.nn.Module, address: Path) -> dict[str, float]:
    metrics = spec.eval_metrics()
    with torch.no_grad():
        for batch in batches(spec, address, Mode.EVALUATION):
            metrics.update(batch.labels, model(batch.features))
    return metrics.compute()


def test_the_digits_are_learned(tmp_path: Path) -> None:
    init(tmp_path / "zoo", InitOptions())
    write("digits", str(tmp_path / "data"), Options())
    spec = load(str(tmp_path / "zoo"), "mnist.mnist_functional_api.custom_model", "channels=16")
    torch.manual_seed(0)
    model = spec.model()
    optimizer = spec.optimizer.torch(model.parameters())
    for _ in range(5):
        for batch in batches(spec, tmp_path / "data" / "train", Mode.TRAINING):
            optimizer.zero_grad()
            torch.autograd.backward(spec.loss(batch.labels, model(batch.features)))
            optimizer.step()
    assert measured(spec, model, tmp_path / "data" / "test")["accuracy"] > 0.93


class Rows:
    """Rows of tables with a row-wise Adagrad, as a parameter server would have them."""

    def __init__(self, of: dict[str, Table]) -> None:
        self._rows = LocalTables(of.values())
        self._squares = LocalTables(dataclasses.replace(table, initializer="zeros") for table in of.values())

    def pull(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        return self._rows.pull(name, ids)

    def push(self, gradient: RowGradient) -> None:
        name, ids, rows = gradient
        squares = self._squares.pull(name, ids) + rows**2
        self._squares.assign(name, ids, squares)
        self._rows.assign(name, ids, self.pull(name, ids) - 0.1 * rows / (squares.sqrt() + 1e-8))


def test_the_clicks_are_learned_with_rows_from_a_source(tmp_path: Path) -> None:
    init(tmp_path / "zoo", InitOptions())
    write("generated-clicks", str(tmp_path / "data"), Options(asked=Asked(records=8000)))
    spec = load(str(tmp_path / "zoo"), "recommender.wide_and_deep.custom_model")
    torch.manual_seed(0)
    model = spec.model()
    source = Rows(tables(model))
    attach(model, source)
    optimizer = spec.optimizer.torch(model.parameters())
    for _ in range(2):
        for batch in batches(spec, tmp_path / "data" / "train", Mode.TRAINING):
            optimizer.zero_grad()
            torch.autograd.backward(spec.loss(batch.labels, model(batch.features)))
            optimizer.step()
            for gradient in collect_gradients(model):
                source.push(gradient)
    assert measured(spec, model, tmp_path / "data" / "test")["auc"] > 0.75


@pytest.mark.parametrize("size", [8, 28])
def test_digits_of_any_size_are_fed(tmp_path: Path, size: int) -> None:
    init(tmp_path / "zoo", InitOptions())
    spec = load(str(tmp_path / "zoo"), "mnist.mnist_functional_api.custom_model")
    pixels = np.full((size, size), 255, np.uint8)
    # The second is as ElasticDL's own tool wrote it: a row of floats, a list with one label.
    records = [
        encode({"image": pixels, "label": 3}),
        encode({"image": pixels.reshape(-1).astype(np.float32), "label": np.array([3])}),
    ]
    batch = spec.feed(records, Mode.TRAINING, Metadata())
    assert torch.equal(batch.features, torch.ones(2, 1, size, size))
    assert batch.labels.tolist() == [3, 3]
    assert spec.model()(batch.features).shape == (2, 10)
