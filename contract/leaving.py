"""How long a worker that was told to leave may take: what the trainer keeps to, and what the manifest allows for.

    SIGTERM ── STEP_SECONDS ── FLUSH_SECONDS ── MARGIN_SECONDS ── SIGKILL
    └────────────────────── GRACE_SECONDS ──────────────────────┘

All of it fits into the two minutes between a Spot interruption notice and the end of the instance
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
"""

from __future__ import annotations

STEP_SECONDS = 15
"""A worker leaves when the step under way is final. Past this it leaves in the middle of one, as if it were lost: the
others discard that step and go on."""

FLUSH_SECONDS = 30
"""Then it waits so long for a checkpoint that is being written, its last one included if nobody is left to train."""

MARGIN_SECONDS = 15
"""For the rest: a step's start, messages to etcd, and the end of the interpreter with all its threads and workers."""

GRACE_SECONDS = STEP_SECONDS + FLUSH_SECONDS + MARGIN_SECONDS
"""From SIGTERM to SIGKILL."""
