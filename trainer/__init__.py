"""The elastic trainer: data-parallel training that goes on while workers come and go.

    from trainer import Config, Training, run          # for a training script, see docs/training.md
    raise SystemExit(run(training))

    python -m trainer train --job digits --etcd http://127.0.0.1:2379 --data /data/digits \\
        --checkpoints /data/checkpoints/digits         # the script that comes with it: images

How the parts hang together:

    runtime      command line -> parts -> loop        launcher     one process per GPU
    training     what a script brings                 images       the script for images; model, data, dataset
    membership   who trains together: frozen records and one pure function that decides
    store        etcd, behind a small protocol        coordinator  applies the decisions, in threads
    group        torch's process group, re-formed in the process
    loop         generation after generation          step         gradients and what rides with them
    handover     the state at a generation's start    sync         from peer to peer
    heartbeat    who is frozen or cut off             traits       what must be equal in all workers
    sampler      one cursor for all ranks             loader       this rank's batches, prepared ahead
    checkpoints  for when everyone is gone            metrics      what Prometheus is shown
    report, chart  logs -> summary and picture        torchrun     etcd v3 as a rendezvous for plain torchrun

Importing any of these has no effect, and torch is imported only where it is used, so that
a worker's first log line does not wait for it.
"""

from __future__ import annotations

from trainer.config import Config
from trainer.errors import ConfigError
from trainer.runtime import run
from trainer.training import Report, Training

__all__ = ["Config", "ConfigError", "Report", "Training", "run"]
