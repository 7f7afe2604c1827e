"""`make down`: destroys the stack, then stops the one-machine cloud."""

from __future__ import annotations

import sys

from scripts.session import STACK, Session, UpError, forget_if_lost, release_dead_locks
from scripts.toolchain.errors import SetupError


def main() -> int:
    """Runs every step; returns the exit status."""
    try:
        down()
    except (UpError, SetupError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def down() -> None:
    """Destroys what the stack records, if anything, and stops the cloud.

    Raises:
        UpError: one of them didn't work.
    """
    session = Session.open().start_cloud()
    session.select_stack()
    release_dead_locks(session)
    forget_if_lost(session)
    if session.resources():
        session.run(
            *("pulumi", "destroy", "--yes", "--skip-preview", "--stack", STACK),
            remedy="mend what it names and run `make down` again; `localcloud reset` drops everything at once",
        )
    session.run(sys.executable, "-m", "localcloud", "stop", remedy="see `localcloud logs`")


if __name__ == "__main__":
    sys.exit(main())
