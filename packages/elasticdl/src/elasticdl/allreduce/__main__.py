"""Run a worker: `python3 -m elasticdl.allreduce --help`."""

from __future__ import annotations

import sys

from elasticdl.allreduce.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
