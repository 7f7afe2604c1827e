"""How long a worker may take to leave after SIGTERM: limits of the trainer, and their sum for the manifest.

    SIGTERM ── STEP_SECONDS ── FLUSH_SECONDS ── MARGIN_SECONDS ── SIGKILL
    └────────────────────── GRACE_SECONDS ──────────────────────┘

All of it fits into the two minutes between a Spot interruption notice and the end of the instance
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
"""

from __future__ import annotations

STEP_SECONDS = 15
"""A worker leaves when the current step is final. After this time it leaves in the middle of the step, like a lost
worker: the others discard that step and go on."""

FLUSH_SECONDS = 30
"""Then it waits this long for a checkpoint that is being written, also for the one that the last worker writes."""

MARGIN_SECONDS = 15
"""For everything else: messages to etcd, and the end of the interpreter with its threads and data-loading processes."""

LAST_SECONDS = STEP_SECONDS + FLUSH_SECONDS + 10
"""A worker that is still there ends at once: it is stuck in its script, or in a file system."""

GRACE_SECONDS = STEP_SECONDS + FLUSH_SECONDS + MARGIN_SECONDS
"""From SIGTERM to SIGKILL."""
