"""Commands that are killed on the way, and then run again as their user would."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.e2e.checkout import COMMAND_TIMEOUT_SECONDS, Checkout, Output

SETTLE_SECONDS = 1.5
"""Resources that are quick to make exist by then; the resource whose creation was printed is still being made."""


def stop_once_printed(
    checkout: Checkout, command: str, sign: str, times: int = 1, by: signal.Signals = signal.SIGKILL
) -> str:
    """Start `command`, end its process group soon after it has printed `sign` that many times; return its output."""
    log = Path(checkout.path, "killed.log")
    deadline = time.monotonic() + COMMAND_TIMEOUT_SECONDS
    with log.open("w") as out:
        process = checkout.start(command, stdout=out, stderr=out)
        while log.read_text().count(sign) < times:
            assert process.poll() is None, f"{command} ended by itself:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{sign!r} was not printed:\n{log.read_text()}"
            time.sleep(0.2)
        time.sleep(SETTLE_SECONDS)
        os.killpg(process.pid, by)
        process.wait()
    return log.read_text()


def repeat(checkout: Checkout, command: str) -> Output:
    """Run an interrupted command again as its user would: after `pulumi cancel` if the engine asks for it."""
    first = checkout.run(command, expect=None)
    if first.status != 0 and "pulumi cancel" in first.text:
        checkout.run("pulumi cancel --yes")
        return checkout.run(command)
    assert first.status == 0, str(first)
    return first
