"""Describe an application with TorchX's Python interface, submit it, and print both as JSON.

torchx-python submit.py localcloud/shell:1
"""

from __future__ import annotations

import json
import sys

from torchx.components.utils import sh
from torchx.runner import get_runner


def main(image: str) -> None:
    """Submit a shell command, wait for its end, and read its log."""
    with get_runner() as runner:
        info = runner.dryrun(sh("echo", "from", "Python", image=image), "tidewater", {"namespace": "training"})
        handle = runner.schedule(info)
        status = runner.wait(handle, wait_interval=1)
        assert status is not None
        lines = list(runner.log_lines(handle, "sh"))
        printed = {"handle": handle, "printed": str(info), "state": status.state.name, "log": lines}
        print(json.dumps(printed))


if __name__ == "__main__":
    main(sys.argv[1])
