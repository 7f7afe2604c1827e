"""Print a greeting and the names of the workspace's files."""

from __future__ import annotations

from pathlib import Path

GREETING = "hello from the workspace"

if __name__ == "__main__":
    print(GREETING, *sorted(path.name for path in Path().iterdir()), flush=True)
