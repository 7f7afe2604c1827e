"""The examples: a model of `zoo init` reads digits of any size, and a Deployment takes the room of workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from elasticdl.data.examples.fields import encode
from elasticdl.data.reader import Metadata
from elasticdl.zoo.load import load
from elasticdl.zoo.project import InitOptions, init
from elasticdl.zoo.spec import Mode

from tests.elastic.workers import CHECKOUT
from tidewater.contract import stack
from tidewater.contract.pod_defaults import confined

EXAMPLES = Path(CHECKOUT) / "examples" / "elasticdl"


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


def test_the_deployment_of_the_tutorial_runs_where_workers_do_and_is_admitted_there() -> None:
    (made,) = yaml.safe_load_all((EXAMPLES / "nginx.yaml").read_text())
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "namespace" not in made["metadata"]
    assert (pod["priorityClassName"], made["spec"]["replicas"]) == ("high", 5)
    assert pod["nodeSelector"] == stack.WORKER_NODES
    assert pod["tolerations"][0] in stack.tolerations()
    assert stack.non_root(1000).items() >= pod["securityContext"].items()
    assert container["securityContext"].items() <= confined().items()
