"""Print what TorchX says of an application once a second until it ends: a line of JSON each.

torchx-python watch.py tidewater://torchx/training:echo-kx3p
"""

from __future__ import annotations

import json
import sys
import time

from torchx.runner import get_runner


def main(handle: str) -> None:
    """Watch the application of this handle."""
    with get_runner() as runner:
        while True:
            status = runner.status(handle)
            assert status is not None, f"{handle} is gone"
            replicas = {f"{each.role}/{each.id}": each.state.name for role in status.roles for each in role.replicas}
            said = {"state": status.state.name, "msg": status.msg, "restarts": status.num_restarts}
            print(json.dumps({**said, "replicas": replicas}), flush=True)
            if status.is_terminal():
                return
            time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1])
