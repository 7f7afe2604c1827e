"""Exit codes of the trainer, and what each means to whoever restarts it.

FINISHED      0    the job is done (now, or before this process started); never start it again
FAILED        1    an error that a restart may cure
USAGE         2    bad command line, configuration or data: a restart gives the same again
LEFT          143  left in good order on SIGTERM (128 + 15, what a shell reports for SIGTERM);
                   not 0, since a Job would then count this worker's work as completed
"""

from __future__ import annotations

FINISHED = 0
FAILED = 1
USAGE = 2
LEFT = 143

KILLED = 137
"""What the container runtime reports for SIGKILL (128 + 9): the node was lost, or memory ran out."""

NOT_THE_WORKERS_FAULT = (KILLED, LEFT)
"""Exit codes that say nothing against the code: a manifest's failure policy ignores them."""
