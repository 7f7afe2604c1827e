"""`python -m elasticdl`: the command of a checkout in which the console script is not installed."""

from __future__ import annotations

from elasticdl.client.app import main

if __name__ == "__main__":
    main()
