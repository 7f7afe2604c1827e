"""The whole decision about one job."""

from __future__ import annotations

from datetime import datetime

from controller.decide.actions import Decision
from controller.decide.observed import JobView


def decide(view: JobView, now: datetime) -> Decision:
    """Return what to do about the job now."""
    return Decision(status=view.job.status)
