"""`python -m scripts.adopt`: see `--help`."""

from __future__ import annotations

import sys

from scripts.adopt.command import main

if __name__ == "__main__":
    sys.exit(main())
