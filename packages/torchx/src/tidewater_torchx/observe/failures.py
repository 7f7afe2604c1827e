"""Why a replica failed, or can't start: exit code, reason, and the last lines of its log.

    failure = failure_of(pod)                      # pure; None if nothing is wrong with it
    lines = last_lines(cluster, failure, namespace)
    structured(failure, lines)                     # JSON, in the form that `torchx status` prints

TorchX prints the error of a replica from the form in which torchelastic writes its error files:
https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/multiprocessing/errors/error_handler.py
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidewater.elasticjob import names
from tidewater.kube.cluster import Cluster, LogOptions, Object
from tidewater.kube.errors import ApiError, NotFound

LAST_LINES = 20
"""Lines of its log that a failure is shown with: a Python traceback and a little before it."""

MOST_WITH_LINES = 8
"""At most so many replicas' logs are read. They often fail together, and each takes a request."""

_WAITS = frozenset({"ContainerCreating", "PodInitializing"})
_MARK = "| "
"""Before each line of a log. TorchX cuts a message that has a line which begins with `Exception`."""


@dataclass(frozen=True)
class Failure:
    """What is wrong with a replica's pod.

    Attributes:
        pod: the pod's name.
        container: the container that failed or can't start; empty if none of them did.
        exit_code: of that container; None if it has none.
        reason: in one word.
        message: what Kubernetes says about it.
        moment: when it failed, in seconds since 1970.
        ended: whether the container has run, so that it has a log.
    """

    pod: str
    container: str
    exit_code: int | None
    reason: str
    message: str
    moment: int
    ended: bool

    @property
    def sentence(self) -> str:
        """Return what happened, in a few words."""
        if self.exit_code is not None:
            what = f"pod {self.pod} exited with code {self.exit_code}"
            if self.container not in ("", names.WORKER_CONTAINER):
                what = f"container {self.container} of {what}"
            reason = f" ({self.reason})" if self.reason not in ("", "Error") else ""
        else:
            what = f"pod {self.pod} failed" if self.ended else f"pod {self.pod} can't start"
            reason = f" ({self.reason})" if self.reason else ""
        return f"{what}{reason}" + (f": {self.message}" if self.message else "")


def failure_of(pod: Object) -> Failure | None:
    """Return what is wrong with a pod; None if it waits for room, runs, or has succeeded."""
    status: Mapping[str, Any] = pod.get("status") or {}
    failed = _failed(status)
    if status.get("phase") == "Failed":
        return _of_end(pod, failed, status)
    if failed is not None and status.get("phase") == "Running" and "running" not in (failed.get("state") or {}):
        return _of_end(pod, failed, status)
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "ContainerCreating") not in _WAITS:
            message = str(waiting.get("message", ""))
            return Failure(_name(pod), str(container["name"]), None, str(waiting["reason"]), message, _made(pod), False)
    return None


def last_lines(cluster: Cluster, failure: Failure, namespace: str) -> tuple[str, ...]:
    """Return the last lines of the log of the container that failed; none if its node doesn't answer any more."""
    if not failure.ended or not failure.container:
        return ()
    options = LogOptions(container=failure.container, tail=LAST_LINES)
    with contextlib.suppress(NotFound, ApiError):
        return tuple(cluster.log(failure.pod, options, namespace))
    return ()


def structured(failure: Failure, lines: Sequence[str], **more: object) -> str:
    """Return a failure as JSON, as TorchX reads it; `more` is added next to its message."""
    text = "\n".join([failure.sentence, *(f"{_MARK}{line}" for line in lines)])
    message = {
        "message": text,
        "errorCode": "" if failure.exit_code is None else failure.exit_code,
        "extraInfo": {"timestamp": failure.moment, "reason": failure.reason},
    }
    return json.dumps({"message": message, **more})


def _of_end(pod: Object, failed: Mapping[str, Any] | None, status: Mapping[str, Any]) -> Failure:
    """Return the failure of a pod that has ended, or that has a container which has."""
    ended = _terminated(failed) if failed is not None else {}
    # A pod that was evicted says so itself, and of its containers only that they were killed.
    reason = str(status.get("reason") or ended.get("reason") or "")
    message = str(status.get("message") or ended.get("message") or "").strip()
    return Failure(
        pod=_name(pod),
        container="" if failed is None else str(failed["name"]),
        exit_code=ended.get("exitCode"),
        reason=reason,
        message=message,
        moment=_seconds(ended.get("finishedAt")) or _made(pod),
        ended=True,
    )


def _failed(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the status of the container that failed: the one that trains before the others."""
    found = [each for each in _containers(status) if _terminated(each).get("exitCode")]
    own = [each for each in found if each.get("name") == names.WORKER_CONTAINER]
    return next(iter(own or found), None)


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _terminated(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a container ended, or ended last if it waits to be started again."""
    state, last = container.get("state") or {}, container.get("lastState") or {}
    found: Mapping[str, Any] = state.get("terminated") or ({} if "running" in state else last.get("terminated")) or {}
    return found


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _made(pod: Object) -> int:
    return _seconds(pod["metadata"].get("creationTimestamp"))


def _seconds(text: object) -> int:
    """Return a time of the API server in seconds since 1970; 0 for none."""
    return int(datetime.fromisoformat(str(text)).timestamp()) if text else 0
