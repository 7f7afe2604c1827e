"""The example that `zoo init` writes reads digits of any size; tests of jobs show that the examples learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from elasticdl.data.examples.fields import encode
from elasticdl.data.reader import Metadata
from elasticdl.zoo.load import load
from elasticdl.zoo.project import InitOptions, init
from elasticdl.zoo.spec import Mode


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
