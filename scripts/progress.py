"""Wait until the workers train: they report a step that they have done since, or that the job has finished.

`newest_report` reads their logs; `await_training` observes the workers and waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from scripts.session import Session, UpError

DEADLINE_SECONDS = 300.0
_INTERVAL_SECONDS = 0.2
_REPORT_SECONDS = 10.0


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


def newest_report(lines: Iterable[str], since: datetime) -> str:
    """Return the newest line that shows that the job trains: a step after `since`, or its end; "" if there is none.

    A job stays finished, so its end counts whenever it was.
    """
    newest, best = since, ""
    for line in lines:
        fields = dict(pair.partition("=")[::2] for pair in line.split())
        if fields.get("event") == "finished":
            return line
        # Events have the number of their step too.
        if line.startswith("step=") and "time" in fields and datetime.fromisoformat(fields["time"]) > newest:
            newest, best = datetime.fromisoformat(fields["time"]), line
    return best


def await_training(session: Session, outputs: Mapping[str, Any]) -> None:
    """Return when training progresses.

    Raises:
        UpError: it doesn't within `DEADLINE_SECONDS`; the message has the pods' state and where to look.
    """
    namespace, selector = str(outputs["namespace"]), str(outputs["workerSelector"])
    workers = ("-n", namespace, "-l", selector)
    begin, since = time.monotonic(), datetime.now(UTC)
    next_report = begin + _REPORT_SECONDS
    while True:
        # A container that hasn't started yet has no log, which is no error here.
        log = session.ask("kubectl", "logs", *workers, "--tail=20", "--ignore-errors")
        if report := newest_report(log.splitlines(), since):
            print(report)
            return
        elapsed = time.monotonic() - begin
        if elapsed > DEADLINE_SECONDS:
            raise UpError(
                f"no training step in {DEADLINE_SECONDS:.0f} s ({states(session, workers)}): `. ./activate`, then "
                f"`kubectl describe pods -n {namespace} -l {selector}`, the same with `logs`, and `localcloud logs`"
            )
        if time.monotonic() > next_report:
            now = states(session, workers)
            print(f"waiting for the first training steps, {elapsed:.0f} s: {now}", flush=True)
            next_report += _REPORT_SECONDS
        time.sleep(_INTERVAL_SECONDS)


def states(session: Session, workers: Iterable[str]) -> str:
    """Return what the worker pods are doing, in words."""
    pods = json.loads(session.ask("kubectl", "get", "pods", *workers, "-o", "json"))["items"]
    return ", ".join(f"{pod['metadata']['name']} {doing(pod)}" for pod in pods) or "no worker pods yet"
