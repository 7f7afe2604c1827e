"""`make up`: from nothing, or from wherever an earlier run stopped, to a stack that trains."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from scripts.progress import await_training
from scripts.session import STACK, Session, UpError, forget_if_lost, release_dead_locks
from scripts.toolchain.errors import SetupError


def main() -> int:
    """Runs every step; returns the exit status."""
    try:
        up()
    except (UpError, SetupError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; `make up` goes on where it stopped", file=sys.stderr)
        return 130
    return 0


def up() -> None:
    """Starts the cloud, deploys the stack, writes the kubeconfig and waits for training.

    Raises:
        UpError: one of them didn't work.
    """
    session = Session.open().start_cloud()
    session.select_stack()
    release_dead_locks(session)
    forget_if_lost(session)
    session.run(
        *("pulumi", "up", "--yes", "--skip-preview", "--stack", STACK),
        remedy="mend what it names and run `make up` again",
    )
    outputs = session.outputs()
    write_kubeconfig(session.state / "kubeconfig", outputs["kubeconfig"])
    await_training(session, outputs)
    print(next_words(outputs.get("next")))


def write_kubeconfig(path: Path, kubeconfig: Any) -> None:
    """Writes the stack's kubeconfig (text or an object) where KUBECONFIG points, readable by its owner only."""
    text = kubeconfig if isinstance(kubeconfig, str) else json.dumps(kubeconfig, indent=1)
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)


def next_words(following: Any) -> str:
    """What to run next, from the stack's output `next`: a text, a list or a table."""
    if isinstance(following, dict):
        following = [f"{what}: {command}" for what, command in following.items()]
    lines = following if isinstance(following, list) else str(following or "").splitlines()
    return "\n".join(
        ["", "It trains. Next, in this directory:", "    . ./activate", *(f"    {line}" for line in lines)]
    )


if __name__ == "__main__":
    sys.exit(main())
