"""``trainer.train`` with several processes: the GPU of process 1 fails whenever it sums with others.

python -m tests.elastic.launch.bad_gpu --processes 2 …
"""

from __future__ import annotations

import os

import tidewater
from tidewater.contract import env
from trainer.train import flags, training

if __name__ == "__main__":
    if os.environ.get(env.LOCAL_RANK) == "1":
        from tests.elastic.group import faulty  # with torch, which the launcher does without

        faulty.install("device", "begin")
    raise SystemExit(tidewater.run(training, flags=flags))
