"""Forks workers that run a script with Accelerate: see ``tests.elastic.schedules.zygote``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tidewater.elastic.launch.zygote import Request, Run, serve


def load() -> Run:
    """Import all that a worker may import."""
    import packages.accelerate.tests.script
    from tests.elastic.schedules import zygote

    zygote.load()
    assert packages.accelerate.tests.script
    return _run


def _run(request: Request) -> int:
    from packages.accelerate.tests.script import main
    from tests.elastic.schedules.script import Options

    options: dict[str, Any] = dict(request["options"])
    options["folder"], options["ledgers"] = Path(options["folder"]), Path(options["ledgers"])
    epochs, output = options.pop("epochs"), Path(options.pop("output"))
    sys.argv = ["script.py", *request["argv"]]
    try:
        main(Options(**options), epochs, output)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


if __name__ == "__main__":
    serve(load)
