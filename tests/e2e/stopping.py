"""Commands that are interrupted, and run again as their user would.

stop_once_printed(checkout, DESTROY, " deleted ", times=20)
stop_when(checkout, "make up", lambda text: node_groups(checkout))
repeat(checkout, DESTROY)
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.checkout import ADOPT, COMMAND_TIMEOUT_SECONDS, UP, Checkout, Output

SETTLE_SECONDS = 1.5
"""Resources that are quick to make exist by then; the resource that Pulumi has just announced is still being made."""


def stop_once_printed(
    checkout: Checkout, command: str, sign: str, times: int = 1, by: signal.Signals = signal.SIGKILL
) -> str:
    """Start `command`, end its process group soon after it has printed `sign` that many times; return its output.

    `make up` prints only what takes long, so on a fast machine it may not print a sign.
    """

    def printed(text: str) -> bool:
        if text.count(sign) < times:
            return False
        time.sleep(SETTLE_SECONDS)
        return True

    return stop_when(checkout, command, printed, by)


def stop_when(
    checkout: Checkout, command: str, reached: Callable[[str], object], by: signal.Signals = signal.SIGKILL
) -> str:
    """Start `command`, end its process group once `reached` says so of its output; return its output."""
    log = Path(checkout.path, "killed.log")
    deadline = time.monotonic() + COMMAND_TIMEOUT_SECONDS
    with log.open("w") as out:
        process = checkout.start(command, stdout=out, stderr=out)
        while not reached(log.read_text()):
            assert process.poll() is None, f"{command} ended by itself:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{command} did not get so far:\n{log.read_text()}"
            time.sleep(0.2)
        os.killpg(process.pid, by)
        process.wait()
    return log.read_text()


def repeat(checkout: Checkout, command: str) -> Output:
    """Run an interrupted command again as its user would.

    If it was killed, `pulumi cancel` comes first, and before an `up` also `ADOPT`, as docs/deploy-aws.md says.
    """
    first = checkout.run(command, expect=None)
    if first.status != 0 and "pulumi cancel" in first.text:
        checkout.run("pulumi cancel --yes")
        if command == UP:
            checkout.run(ADOPT)
        return checkout.run(command)
    assert first.status == 0, str(first)
    return first
