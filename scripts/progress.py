"""Wait until the workers train: the step in their logs grows, or the job reports that it has finished.

`decide` is the pure decision; `await_training` observes the workers and waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.session import Session, UpError

DEADLINE_SECONDS = 300.0
_INTERVAL_SECONDS = 0.2
_REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class Seen:
    """The workers' state at one moment."""

    pods: Mapping[str, str] = field(default_factory=dict)
    """Name to phase, or the reason why it waits."""
    step: int = 0
    line: str = ""
    """The newest step report."""
    finished: bool = False

    def __str__(self) -> str:
        return ", ".join(f"{name} {doing}" for name, doing in self.pods.items()) or "no worker pods yet"


def decide(first: Seen | None, now: Seen) -> bool:
    """Return whether training progresses: it has finished, or a report is newer than the first one seen."""
    return now.finished or (first is not None and now.step > first.step)


def doing(pod: Mapping[str, Any]) -> str:
    """Return a pod's status as `kubectl get pods` shows it."""
    status = pod.get("status", {})
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        reason = container.get("state", {}).get("waiting", {}).get("reason")
        if reason and reason != "PodInitializing":
            return str(reason)
    if status.get("phase") == "Pending":
        for condition in status.get("conditions", []):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return str(condition.get("reason", "Pending"))
    return str(status.get("phase", "Unknown"))


def newest_step(lines: Iterable[str]) -> tuple[int, str]:
    """Return the highest step among the logfmt step reports, and its line; 0 and "" if there is none."""
    best = (0, "")
    for line in lines:
        head = line.split(" ", 1)[0]
        if head.startswith("step=") and head[5:].isdigit():
            best = max(best, (int(head[5:]), line))
    return best


def look(session: Session, namespace: str, selector: str) -> Seen:
    """Return the current state of the worker pods, from their status and the ends of their logs."""
    workers = ("-n", namespace, "-l", selector)
    pods = json.loads(session.ask("kubectl", "get", "pods", *workers, "-o", "json"))["items"]
    states = {pod["metadata"]["name"]: doing(pod) for pod in pods}
    # A container that hasn't started yet has no log, which is no error here.
    lines = session.ask("kubectl", "logs", *workers, "--tail=20", "--ignore-errors").splitlines()
    step, line = newest_step(lines)
    return Seen(states, step, line, any(line.startswith("event=finished") for line in lines))


def await_training(session: Session, outputs: Mapping[str, Any]) -> None:
    """Return when training progresses.

    Raises:
        UpError: it doesn't within `DEADLINE_SECONDS`; the message has the pods' state and where to look.
    """
    namespace, selector = str(outputs["namespace"]), str(outputs["workerSelector"])
    begin = time.monotonic()
    first: Seen | None = None
    next_report = begin + _REPORT_SECONDS
    while True:
        now = look(session, namespace, selector)
        if decide(first, now):
            print(now.line or "the job has finished")
            return
        if first is None and now.step > 0:
            first = now
        elapsed = time.monotonic() - begin
        if elapsed > DEADLINE_SECONDS:
            raise UpError(
                f"no training step in {DEADLINE_SECONDS:.0f} s ({now}): `. ./activate`, then "
                f"`kubectl describe pods -n {namespace} -l {selector}`, the same with `logs`, and `localcloud logs`"
            )
        if time.monotonic() > next_report:
            print(f"waiting for the first training steps, {elapsed:.0f} s: {now}", flush=True)
            next_report += _REPORT_SECONDS
        time.sleep(_INTERVAL_SECONDS)
