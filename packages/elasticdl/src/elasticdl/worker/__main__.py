"""Run a worker: `python -m elasticdl.worker --help`."""

from __future__ import annotations

import sys

from elasticdl.worker.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
