"""Elastic training with Tidewater on a torch that can't give a process group new peers, as before torch 2.15.

python with_tidewater_restarted.py --job bench --etcd http://HOST:PORT --checkpoints DIR --batch-size 96

The private functions of torch 2.15 are removed from this process, so the trainer finds the same as with an older torch.
"""

from __future__ import annotations

import sys

from benchmarks.elastic.workers import old_torch
from benchmarks.elastic.workers.with_tidewater import training
from tidewater import run

if __name__ == "__main__":
    old_torch.pretend()
    sys.exit(run(training))
