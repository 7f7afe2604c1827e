"""Entry point of `python -m localcloud`."""

from __future__ import annotations

import sys

from localcloud.cli import main

sys.exit(main(sys.argv[1:]))
