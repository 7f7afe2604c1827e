"""``python -m tidewater.elastic``."""

from __future__ import annotations

from tidewater.elastic.main import main

if __name__ == "__main__":
    raise SystemExit(main())
