"""The end of a job: the records that tell all workers that it is finished."""

from __future__ import annotations

import time

from trainer.checkpoint import Checkpoints
from trainer.errors import StoreError
from trainer.membership.coordinator import Coordinator
from trainer.observe.log import Log


def finish(record: bytes, checkpoints: Checkpoints, coordinator: Coordinator, log: Log) -> None:
    """Record the end in the checkpoints' places and in etcd. Retry until it succeeds.

    The checkpoints' places come first: if this process dies in between, the next one finds the end of training in the
    checkpoint and records it again.
    """
    while True:
        try:
            checkpoints.finish(record)
            coordinator.finish(record)
            return
        except (OSError, StoreError) as error:
            log.event("finish_delayed", error=str(error))
            time.sleep(1)
