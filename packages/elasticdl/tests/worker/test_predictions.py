"""Parts of predictions: one for each task, replaced when the task is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from elasticdl.data.reader import Shard
from elasticdl.errors import ZooError
from elasticdl.worker.predictions import Parts, Processed, part_name, worker_id
from elasticdl.zoo.spec import PredictionOutputsProcessor


def test_a_part_has_the_predictions_of_all_minibatches_in_order(tmp_path: Path) -> None:
    parts = Parts(str(tmp_path))
    parts.begin(Shard("/data/test/data-00001", 0, 3))
    parts.add(torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    parts.add(torch.tensor([[4.0, 5.0]]))
    assert not list(tmp_path.iterdir())
    parts.commit()
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("data-00001-000000000000-000000000003-")
    assert np.load(file).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_repeated_task_replaces_its_part_and_no_other(tmp_path: Path) -> None:
    parts = Parts(str(tmp_path))
    for value, shard in ((1.0, Shard("a", 0, 1)), (2.0, Shard("a", 1, 2)), (3.0, Shard("a", 0, 1))):
        parts.begin(shard)
        parts.add(torch.tensor([value]))
        parts.commit()
    assert [np.load(file).tolist() for file in sorted(tmp_path.iterdir())] == [[3], [2]]


def test_what_was_not_committed_is_discarded_by_the_next_task(tmp_path: Path) -> None:
    parts = Parts(str(tmp_path))
    parts.begin(Shard("a", 0, 9))
    parts.add(torch.tensor([9.0]))
    parts.begin(Shard("a", 9, 10))
    parts.add(torch.tensor([1.0]))
    parts.commit()
    assert [np.load(file).tolist() for file in tmp_path.iterdir()] == [[1]]


def test_a_mapping_of_predictions_is_one_file_with_an_array_for_each_name(tmp_path: Path) -> None:
    parts = Parts(str(tmp_path))
    parts.begin(Shard("a", 0, 2))
    parts.add({"wide": torch.ones(2), "deep": torch.zeros(2, 3, dtype=torch.bfloat16)})
    parts.commit()
    (file,) = tmp_path.iterdir()
    content = np.load(file)
    assert {name: content[name].shape for name in content} == {"wide": (2,), "deep": (2, 3)}


def test_predictions_that_are_no_tensors_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="prediction_outputs_processor"):
        Parts(str(tmp_path)).add(["yes", "no"])


def test_files_of_the_same_name_in_two_folders_give_different_parts() -> None:
    assert part_name(Shard("/one/data", 0, 1)) != part_name(Shard("/two/data", 0, 1))


def test_a_processor_gets_the_number_in_the_pods_name() -> None:
    seen: list[tuple[Any, int]] = []

    class Keep(PredictionOutputsProcessor):
        def process(self, predictions: Any, worker_id: int) -> None:
            seen.append((predictions, worker_id))

    Processed(Keep(), worker_id("elasticdl-mnist-worker-12")).add("predictions")
    assert seen == [("predictions", 12)]


def test_a_processor_that_fails_is_named() -> None:
    class Broken(PredictionOutputsProcessor):
        def process(self, predictions: Any, worker_id: int) -> None:
            raise KeyError("table")

    with pytest.raises(ZooError, match="prediction_outputs_processor failed: KeyError"):
        Processed(Broken(), 0).add(torch.ones(1))
