"""`make up`: from nothing, or from wherever an earlier run stopped, to a stack that trains."""

from __future__ import annotations

import sys
from typing import Any

from scripts import updates
from scripts.adopt import adopt
from scripts.progress import await_training
from scripts.session import STACK, Session, exit_status, forget_if_lost, read_config, release_dead_locks
from scripts.toolchain import paths


def up() -> None:
    """Start the cloud, deploy the stack and wait for training.

    Raises:
        UpError: a step failed.
    """
    _, config = read_config(paths.CHECKOUT, STACK)
    session = Session.open().start_cloud("--region", str(config["region"]))
    session.select_stack()
    release_dead_locks(session)
    forget_if_lost(session)
    adopt(session, ["--stack", STACK])
    updates.run(session, "up", remedy="repair what it names (`tidewater doctor` finds more) and run `make up` again")
    outputs = session.outputs()
    await_training(session, outputs)
    print(next_words(outputs.get("next")))


def next_words(following: Any) -> str:
    """Return what to run next, from the stack's output `next`: a text, a list or a table."""
    if isinstance(following, dict):
        following = [f"{what}: {command}" for what, command in following.items()]
    lines = following if isinstance(following, list) else str(following or "").splitlines()
    return "\n".join(
        ["", "It trains. Next, in this directory:", "    . ./activate", *(f"    {line}" for line in lines)]
    )


if __name__ == "__main__":
    sys.exit(exit_status("up", up))
