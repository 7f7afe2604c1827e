"""`python -m scripts.sweep STACK`: see `--help`."""

from __future__ import annotations

import sys

from scripts.sweep.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
