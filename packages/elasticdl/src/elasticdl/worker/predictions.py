"""Where predictions go: into a file for each task, or to the model's own `prediction_outputs_processor`.

    outputs = Parts("/data/mnist/predictions")
    outputs.begin(Shard("/data/mnist/test/data-00000", 0, 4096))
    outputs.add(predictions)                    # of each minibatch
    outputs.commit()                            # data-00000-000000000000-000000004096-5f3a9c1d.npy

A part is one array with the task's predictions in the order of the records, `.npz` with one array for each name if the
model returns a mapping. A task that is repeated gives the same name, so it replaces its part: each record has one
prediction in the end. Sorted by name, the parts of a file are in the order of its records.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from elasticdl.data.reader import Shard
from elasticdl.data.storage import STORE
from elasticdl.errors import ZooError
from elasticdl.zoo.spec import PredictionOutputsProcessor
from tidewater.elastic.storage.store import joined


class Outputs(Protocol):
    """Takes the predictions of one task after the other."""

    def begin(self, shard: Shard) -> None:
        """Say which records come; what was added and not committed is discarded."""
        ...

    def add(self, predictions: Any) -> None:
        """Take the predictions of one minibatch, on the CPU."""
        ...

    def commit(self) -> None:
        """Store what was added since `begin`."""
        ...


class Parts:
    """Writes one file for each task to a folder on a volume or in S3."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._shard = Shard("", 0, 0)
        self._added: list[Any] = []

    def begin(self, shard: Shard) -> None:
        """See `Outputs`."""
        self._shard, self._added = shard, []

    def add(self, predictions: Any) -> None:
        """See `Outputs`. Raise ZooError if a prediction is neither a tensor nor a mapping of tensors."""
        values = predictions.values() if isinstance(predictions, Mapping) else [predictions]
        if not all(isinstance(value, torch.Tensor) for value in values):
            raise ZooError(
                f"the model returned {type(predictions).__name__} as its predictions",
                "return a tensor or a mapping of tensors, or define a prediction_outputs_processor",
            )
        self._added.append(predictions)

    def commit(self) -> None:
        """See `Outputs`. The file has its name once it is whole."""
        if not self._added:
            return
        buffer = io.BytesIO()
        if isinstance(self._added[0], Mapping):
            np.savez(buffer, **{name: _joined([each[name] for each in self._added]) for name in self._added[0]})
            suffix = "npz"
        else:
            np.save(buffer, _joined(self._added))
            suffix = "npy"
        address = joined(self._address, f"{part_name(self._shard)}.{suffix}")
        STORE.written(address, lambda file: file.write(buffer.getbuffer()))
        self._added = []


class Processed:
    """Gives predictions to the model's own processor."""

    def __init__(self, processor: PredictionOutputsProcessor, worker_id: int) -> None:
        self._processor, self._worker_id = processor, worker_id

    def begin(self, shard: Shard) -> None:
        """See `Outputs`."""

    def add(self, predictions: Any) -> None:
        """See `Outputs`. Raise ZooError if the processor fails."""
        try:
            self._processor.process(predictions, self._worker_id)
        except Exception as error:
            raise ZooError(
                f"prediction_outputs_processor failed: {type(error).__name__}: {error}", "correct its process()"
            ) from error

    def commit(self) -> None:
        """See `Outputs`. The processor has stored what it got."""


def part_name(shard: Shard) -> str:
    """Return the name of a task's part, without its suffix: unlike that of any other range or file."""
    file = re.sub(r"[^\w.-]", "_", shard.name.rstrip("/").rpartition("/")[2])[-80:] or "part"
    digest = hashlib.sha256(shard.name.encode()).hexdigest()[:8]
    return f"{file}-{shard.start:012d}-{shard.end:012d}-{digest}"


def worker_id(worker: str) -> int:
    """Return the number at the end of a pod's name; 0 if there is none."""
    found = re.search(r"(\d+)$", worker)
    return int(found[1]) if found else 0


def _joined(parts: list[torch.Tensor]) -> Any:
    """Return the rows of all minibatches as one array; numpy has no bfloat16, so that becomes float32."""
    whole = torch.cat([part.detach().reshape(part.shape or (1,)) for part in parts])
    return (whole.float() if whole.dtype == torch.bfloat16 else whole).numpy()
