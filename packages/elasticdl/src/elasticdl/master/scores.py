"""The metrics of an evaluation, from what the workers send to the line in the log.

scores = Scores(spec.eval_metrics)
data = scores.packed({"": b'{"accuracy": {"right": 60, "count": 64}}'})    # InputError if they don't combine
scores.combined([data, ...])                                           # {"accuracy": 0.9375}
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from elasticdl.errors import ElasticDLError, InputError
from elasticdl.zoo.metrics import Metrics


class Scores:
    """Combines the metrics of one model; the parts may come in any order."""

    def __init__(self, new: Callable[[], Metrics]) -> None:
        self._new = new

    def packed(self, states: Mapping[str, bytes]) -> bytes:
        """Return a worker's metrics as they are stored; raise InputError if they do not combine with this model's.

        Args:
            states: What `Metrics.to_json` returned, as a whole or divided; the names of the parts say nothing.
        """
        try:
            whole: dict[str, Any] = {}
            for state in states.values():
                whole |= json.loads(state)
            text = json.dumps(whole, sort_keys=True)
            self._new().merge_json(text)
        except ElasticDLError as error:
            raise InputError(f"the metrics of a worker can't be used: {error.message}", error.remedy) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"the metrics of a worker can't be used: {error!r}",
                "All pods of a job must have the same model zoo and the same version of elasticdl.",
            ) from error
        return zlib.compress(text.encode())

    def combined(self, parts: Iterable[bytes]) -> dict[str, float]:
        """Return each metric's value over all parts that `packed` returned."""
        metrics = self._new()
        for part in parts:
            metrics.merge_json(zlib.decompress(part).decode())
        return metrics.compute()
