"""See `elasticdl.master.program`."""

from __future__ import annotations

import sys

from elasticdl.master.program import main

if __name__ == "__main__":
    sys.exit(main())
