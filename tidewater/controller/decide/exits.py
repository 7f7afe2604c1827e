"""What the end of a pod means: the work is done, or the pod is replaced, or it has failed for good.

    verdict(pod, replica)                # Verdict.RETRY
    tally(status, judged, nodes, now)    # the failures that count, each once

A pod that was evicted, preempted or lost with its node did not fail: it is replaced under any restart policy, and
it is not counted. That includes a pod without any container status, which is what such pods often look like.

An exit after SIGKILL or SIGTERM mostly has such a cause too, even if nothing says so. But a program that kills itself,
or a liveness probe that always fails, would be replaced for ever. So only `FREE_SIGNALS` of them in a row are free.

Failures of a device, such as a GPU, are also counted by node: after `MOST_DEVICE_FAILURES` the job names the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from tidewater.contract.exit_codes import ALWAYS_RETRIED, DEVICE_FAILED, NOT_THE_WORKERS_FAULT
from tidewater.controller.decide.actions import Emit
from tidewater.controller.decide.observed import NodeView, PodView
from tidewater.elasticjob.choices import RestartPolicy
from tidewater.elasticjob.model import ReplicaSpec
from tidewater.elasticjob.names import Reason
from tidewater.elasticjob.status import NodeStatus, Status

BACKOFF = timedelta(seconds=10)
LONGEST_BACKOFF = timedelta(seconds=300)
LONG_RUN = timedelta(minutes=10)
"""After a run of this length the back-off starts again at its shortest, as the kubelet's does."""

MOST_OUT_OF_MEMORY = 5
"""The job fails when pods of one name have used more memory than their limit so many times in a row.

What a program needs in its first minutes it needs at every start, so more attempts would only cost nodes. Each of the
five waits twice as long as the one before, in case that memory is short only for a while. A pod that ran for LONG_RUN
before begins a new row, as does one that ended otherwise, and then backoffLimit is what ends the job.
"""

FREE_SIGNALS = 3
"""Pods of one name may exit with 137 or 143 so many times in a row, without a disruption, before it counts.

The last of these waits for `BACKOFF`, each further one for twice as long. As with memory, a run of LONG_RUN or another
failure begins a new row."""

MOST_DEVICE_FAILURES = 3
"""A node counts as failing after so many workers of a job have ended there by an error of a device.

A single error may have been chance, and the process that replaces the worker often finds the device in order."""

SHORTEST_LIFE = timedelta(seconds=5)
"""A disrupted pod is not replaced earlier than this after its creation, if a kubelet refuses each pod at once."""


class Verdict(Enum):
    """What a pod's state means for the job."""

    LIVE = "waits, runs, or may run"
    DONE = "has finished its work"
    REPLACE = "was disrupted: replaced at once, not counted"
    RETRY = "failed: counted, replaced after a back-off"
    PERMANENT = "failed for good: not replaced"


@dataclass(frozen=True, slots=True)
class Tally:
    """The failures that count against backoffLimit, after the present pods are taken into account."""

    restarts: int
    counted: dict[str, int]
    last_failure_time: datetime | None
    events: tuple[Emit, ...]
    out_of_memory: Mapping[str, int] = field(default_factory=dict)
    """By name of a pod: see `MOST_OUT_OF_MEMORY`."""
    signals: Mapping[str, int] = field(default_factory=dict)
    """By name of a pod: see `FREE_SIGNALS`."""
    last_failure: str = ""
    """Which pod failed last, how, and what it printed at the end."""
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    """By name: see `MOST_DEVICE_FAILURES`."""


def verdict(pod: PodView, replica: ReplicaSpec) -> Verdict:
    """Return what the pod's state means under its type's restart policy."""
    if pod.phase == "Succeeded":
        return Verdict.DONE
    if pod.phase != "Failed":
        return Verdict.LIVE
    if pod.disrupted:
        return Verdict.REPLACE
    if pod.exit_code == 0:
        return Verdict.DONE  # the container that trains has finished; another one of the pod failed
    if replica.restart_policy is RestartPolicy.NEVER:
        return Verdict.REPLACE if pod.exit_code is None else Verdict.PERMANENT
    if pod.oom_killed:
        return Verdict.RETRY
    if pod.exit_code is None:
        return Verdict.REPLACE
    if pod.exit_code in NOT_THE_WORKERS_FAULT:
        return Verdict.RETRY if pod.signals > FREE_SIGNALS else Verdict.REPLACE
    if replica.restart_policy is not RestartPolicy.EXIT_CODE:
        return Verdict.RETRY
    retried = pod.exit_code in ALWAYS_RETRIED or pod.exit_code in replica.retryable_exit_codes
    return Verdict.RETRY if retried else Verdict.PERMANENT


def signals(pod: PodView, status: Status) -> int:
    """Return how many times in a row pods of this name have exited after a signal; 0 if this failed one has not."""
    if pod.disrupted or pod.oom_killed or pod.exit_code not in NOT_THE_WORKERS_FAULT:
        return 0
    row = status.signals.get(pod.name, 0)
    if pod.uid in status.counted:
        return max(1, row)
    return 1 if _ran_long(pod) else row + 1


def tally(
    status: Status, judged: Iterable[tuple[PodView, Verdict]], nodes: Mapping[str, NodeView], now: datetime
) -> Tally:
    """Return the failures that count, each once for as long as its pod exists.

    Args:
        status: the job's present status, which says what has been counted.
        judged: the job's pods. A pod that is being deleted is LIVE, since what it does from then on is not counted.
        nodes: by name.
        now: in whole seconds.
    """
    restarts, counted, events = status.restarts, dict[str, int](), list[Emit]()
    exhausted, signalled = dict(status.out_of_memory), dict(status.signals)
    new: list[PodView] = []
    for pod, meaning in judged:
        seen = [each.uid for each in pod.parts if each.uid in status.counted]
        known = max((status.counted[uid] for uid in seen), default=None)
        failures = pod.restarts + (meaning is Verdict.RETRY)
        if known is None and not failures and not pod.signals and meaning is not Verdict.PERMANENT:
            continue
        if known is None or failures > known:
            seen = [each.uid for each in pod.parts]  # none of them counts again: they end because this one has
        if pod.terminating:
            failures = known or 0
        elif pod.restarted_after == 0 and meaning is Verdict.LIVE:
            known = failures  # restartPolicy Always restarts a container although it has not failed
        elif known is None or failures > known:
            new.append(pod)
            events.append(_event(pod, meaning))
            _count_rows(exhausted, signalled, pod)
        counted |= dict.fromkeys(seen, max(failures, known or 0))
        restarts += max(0, failures - (known or 0))
    failed = restarts > status.restarts
    time = now if failed else status.last_failure_time
    # Workers often fail because another one has.
    first = min(new, key=lambda pod: pod.finished or now, default=None)
    words = status.last_failure if first is None else failure(first)
    devices = _devices(status, new, nodes)
    before = failing(status.nodes)
    events += (_node_event(name, devices[name]) for name in failing(devices) if name not in before)
    return Tally(restarts, counted, time, tuple(events), exhausted, signalled, words, devices)


def failing(nodes: Mapping[str, NodeStatus]) -> tuple[str, ...]:
    """Return the names of the nodes on which devices have failed too often."""
    return tuple(sorted(name for name, each in nodes.items() if each.device_failures >= MOST_DEVICE_FAILURES))


def _devices(status: Status, new: Iterable[PodView], nodes: Mapping[str, NodeView]) -> Mapping[str, NodeStatus]:
    """Return the failures of devices by node, with those of pods that have not been seen to fail before.

    Nodes that are gone are forgotten. A controller that may not read nodes knows of none, and forgets none.
    """
    there = {name: each for name, each in status.nodes.items() if not nodes or name in nodes}
    found = {name: each for name, each in there.items() if not nodes or nodes[name].uid == each.uid}
    for pod in new:
        code = pod.exit_code if pod.phase == "Failed" else pod.restarted_after
        if code == DEVICE_FAILED and pod.node is not None and (not nodes or pod.node in nodes):
            number = found.get(pod.node, NodeStatus()).device_failures + 1
            found[pod.node] = NodeStatus(device_failures=number, uid=nodes[pod.node].uid if nodes else "")
    tainted = {name for name in found if nodes and nodes[name].tainted}
    return {name: replace(each, tainted=each.tainted or name in tainted) for name, each in found.items()}


def _count_rows(exhausted: dict[str, int], signalled: dict[str, int], pod: PodView) -> None:
    """Add the pod's end, which has not been seen before, to the row of its name, or end the row.

    A pod that was lost with its node says nothing about memory and leaves the row as it is. Nor does one that exited
    with 137 and without the reason: containerd sometimes learns too late why a container ended
    (https://github.com/containerd/containerd/issues/8180).
    """
    if pod.signals:
        signalled[pod.name] = pod.signals
        return
    signalled.pop(pod.name, None)
    row = exhausted.pop(pod.name, 0)
    if pod.oom_killed:
        exhausted[pod.name] = 1 if _ran_long(pod) else row + 1


def _ran_long(pod: PodView) -> bool:
    return pod.started is not None and pod.finished is not None and pod.finished - pod.started >= LONG_RUN


def due(pod: PodView, meaning: Verdict, earlier: int, last_failure: datetime | None) -> datetime:
    """Return when the failed pod is to be replaced.

    Args:
        pod: a pod to REPLACE or to RETRY.
        meaning: which of the two.
        earlier: failures of the job that were counted before those of the pods that wait to be replaced now. Workers
            often fail together, when one of them does, and then they wait as after one failure.
        last_failure: when a failure was last counted, for a pod that does not say when it ended.
    """
    if meaning is not Verdict.RETRY and pod.signals < FREE_SIGNALS:
        return pod.created + SHORTEST_LIFE
    ended = pod.finished or last_failure or pod.created
    if meaning is not Verdict.RETRY or (pod.started is not None and ended - pod.started >= LONG_RUN):
        earlier = 0
    earlier = max(earlier, pod.signals - FREE_SIGNALS)
    return ended + min(LONGEST_BACKOFF, BACKOFF * (1 << min(earlier, 10)))


def _event(pod: PodView, meaning: Verdict) -> Emit:
    words = f" {_last_line(pod.last_words)}" if pod.last_words else ""
    if meaning not in (Verdict.RETRY, Verdict.PERMANENT) and not pod.signals:
        text = f"A container of pod {pod.name} failed and was restarted.{words}"
        return Emit("Warning", Reason.EXITED_WITH_CODE, text)
    after = "It is not restarted." if meaning is Verdict.PERMANENT else "It will be restarted."
    return Emit("Warning", Reason.EXITED_WITH_CODE, f"Pod {pod.name} exited {_how(pod)}. {after}{words}")


def _node_event(name: str, node: NodeStatus) -> Emit:
    text = f"{node.device_failures} workers on node {name} have ended by an error of a device."
    return Emit("Warning", Reason.DEVICE_FAILING, text)


def failure(pod: PodView) -> str:
    """Return how a pod failed, or a container in it, and what it printed at the end."""
    code = _how(pod) if pod.phase == "Failed" else f"with code {pod.restarted_after}"
    return f"Pod {pod.name} exited {code}" + (f": {pod.last_words}" if pod.last_words else ".")


def in_one_line(failure: str) -> str:
    """Return how a pod failed with only the last line of what it printed: in a traceback, the error itself."""
    how, _, words = failure.partition(": ")
    return f"{how}: {_last_line(words)}" if words else failure


def _last_line(words: str) -> str:
    return words.rpartition("\n")[2]


def _how(pod: PodView) -> str:
    return "because it used more memory than its limit" if pod.oom_killed else f"with code {pod.exit_code}"
