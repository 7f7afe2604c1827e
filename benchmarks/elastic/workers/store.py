"""The store of torchrun's rendezvous, in its own process: python store.py PORT

torchrun would host it in one of the agents, and the loss of that node would end the whole job.
"""

from __future__ import annotations

import signal
import sys

from torch._C._distributed_c10d import TCPStore

from benchmarks.elastic.workers import names

if __name__ == "__main__":
    store = TCPStore(names.HOST, int(sys.argv[1]), is_master=True, wait_for_workers=False)
    signal.pause()
