"""The end of a job: the records by which everybody knows that it is done."""

from __future__ import annotations

import time

from trainer.checkpoint import Checkpoints
from trainer.errors import StoreError
from trainer.membership.coordinator import Coordinator
from trainer.observe.log import Log


def finish(record: bytes, checkpoints: Checkpoints, coordinator: Coordinator, log: Log) -> None:
    """Record the end on the volume and in etcd, for as long as it takes.

    The volume comes first: should this process die in between, the next one finds the end of training in the
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
