"""Forks workers with a Trainer, which has been imported once: that takes many seconds.

python -m packages.transformers.tests.zygote < requests > reports       # see ``tests.farm``
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.elastic.schedules import zygote
from tidewater.elastic.launch.zygote import Request, Run, serve


def load() -> Run:
    """Import all that a worker may import."""
    zygote.load()
    # The Trainer imports it where it is, and its pyarrow starts threads, which a fork would lose. No script uses it.
    sys.modules["datasets"] = None  # type: ignore[assignment] # as Python marks a module that is not there

    from packages.transformers.tests import script

    assert script
    return _run


def _run(request: Request) -> int:
    from packages.transformers.tests import script
    from tests.elastic.schedules.script import Options

    options = dict(request["options"])
    kind, given = options.pop("script", "ledger"), options.pop("arguments", {})
    options["folder"], options["ledgers"] = Path(options["folder"]), Path(options["ledgers"])
    return int(getattr(script, kind)(Options(**options), list(request["argv"]), given))


if __name__ == "__main__":
    serve(load)
