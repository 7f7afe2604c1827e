"""``python -m trainer``."""

from __future__ import annotations

from trainer.main import main

if __name__ == "__main__":
    raise SystemExit(main())
