"""`make down`: destroy the stack, then stop the one-machine cloud."""

from __future__ import annotations

import sys
from dataclasses import replace

from scripts import destroy, updates
from scripts.session import STACK, Session, exit_status, forget_if_lost, release_dead_locks


def down() -> None:
    """Destroy the stack's resources, if there are any, and stop the cloud.

    Raises:
        UpError: a step failed.
    """
    session = Session.open().start_cloud()
    session.select_stack()
    release_dead_locks(session)
    forget_if_lost(session)
    if session.resources():
        more = destroy.prepare(session, ["--stack", STACK])
        session = replace(session, environ={**session.environ, **more})
        remedy = "repair what it names and run `make down` again; `localcloud reset` drops everything at once"
        updates.run(session, "destroy", remedy=remedy)
    session.run(sys.executable, "-m", "localcloud", "stop", remedy="see `localcloud logs`")


if __name__ == "__main__":
    sys.exit(exit_status("down", down))
