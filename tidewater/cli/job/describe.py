"""What `job describe` prints: the job, its conditions, its workers, and what has happened to it. Pure.

described(View(job, pods, events), now)      # rich Text, one block under another

A job with more than MOST_PODS pods has a row only for pods that need attention; the others are listed by their indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.text import Text

from tidewater.cli.job import waiting
from tidewater.cli.job.lookup import last_seen, worker_of
from tidewater.cli.show import columns, shortened, since, style
from tidewater.elasticjob import indexes, names
from tidewater.elasticjob.choices import Launcher
from tidewater.elasticjob.pod_end import failed_end
from tidewater.kube.cluster import Object

MOST_EVENTS = 15
MOST_PODS = 40
"""Pods that have a row each; of more pods, only those that aren't running and ready have one."""
MOST_ROWS = 20
"""Rows of a job with more than MOST_PODS pods."""
_MOST_CHARACTERS = 400
"""Of a list of indexes: one with many gaps is cut."""
_NOT_READY = "Not ready"
_WELL = ("Running", "Succeeded")
_NONE = "<none>"
_LABEL_WIDTH = 18


@dataclass(frozen=True)
class View:
    """A job with its pods and the events about it and about them. Text instead of a list: why they can't be read."""

    job: Object
    pods: Sequence[Object] | str
    events: Sequence[Object] | str
    pod_events: Sequence[Object] | str = ()
    resume: str = ""
    """The command that starts the job again."""


def described(view: View, now: datetime) -> Text:
    """Return everything as one text."""
    blocks = [
        Text("\n").join(_head(view, now)),
        _block("Conditions:", _conditions(view.job, now)),
        _block("Replica Statuses:", _replicas(view.job)),
        _block("Pods:", _unreadable(view.pods) or _pods(view, now)),
        _block("Pods' Events:", _unreadable(view.pod_events) or _pod_events(view.pod_events, now)),
        _block("Events:", _unreadable(view.events) or _events(view.events, now)),
    ]
    return Text("\n").join(blocks)


def pod_state(pod: Mapping[str, Any]) -> str:
    """Return a pod's state as `kubectl get pods` shows it: the phase, or the reason why it waits or has ended."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = each.get("state") or {}
        waits = (state.get("waiting") or {}).get("reason")
        if waits and waits != "PodInitializing":
            return str(waits)
    if status.get("reason"):
        return str(status["reason"])
    ended = failed_end(status)
    if ended and status.get("phase") == "Failed":
        return f"{ended.get('reason') or 'Error'} ({ended.get('exitCode')})"
    if status.get("phase") == "Pending" and _unschedulable(status):
        return "Unschedulable"
    return str(status.get("phase") or "Unknown")


def _head(view: View, now: datetime) -> Iterator[Text]:
    job = view.job
    metadata, spec, status = job["metadata"], job["spec"], waiting.status_of(job)
    low, high = waiting.bounds(job)
    state = waiting.state_of(job)
    yield _line("Name:", str(metadata["name"]))
    yield _line("Namespace:", str(metadata.get("namespace", "")))
    yield _line("Created:", f"{since(metadata.get('creationTimestamp'), now)} ago")
    yield _line("State:", state, style(state))
    if status.get("waiting"):
        yield _line("Waiting:", str(status["waiting"]), "yellow")
    aim = status.get("desired", waiting.replicas(job))
    own = f", {waiting.replicas(job)} wanted" if aim != waiting.replicas(job) else ""
    each = waiting.pods_each(job)
    what, pods = ("Replicas:", f", of {each} pods each") if each > 1 else ("Workers:", "")
    yield _line(what, f"{waiting.active(job)} active, {aim} aimed for{own}, from {low} to {high}{pods}")
    launcher = spec.get("launcher") or (metadata.get("annotations") or {}).get(names.ANNOTATION_LAUNCHER)
    yield _line("Launcher:", str(launcher or Launcher.TORCHELASTIC))
    yield _line("Rendezvous:", str(spec.get("rdzvEndpoint", _NONE)))
    if spec.get("suspend"):
        yield _line("Suspended:", f"`{view.resume}` starts it again")
    yield from _policies(spec)
    yield _line("Restarts:", f"{status.get('restarts', 0)} of at most {spec.get('backoffLimit', 20)}")
    if status.get("startTime"):
        yield _line("Started:", f"{since(status['startTime'], now)} ago")
    if status.get("completionTime"):
        yield _line("Completed:", f"{since(status['completionTime'], now)} ago")
    if status.get("queuedSince") and not status.get("wholeSince"):
        yield _line("Queued:", f"for {since(status['queuedSince'], now)}")


def _policies(spec: Mapping[str, Any]) -> Iterator[Text]:
    """Yield lines of what only some jobs have."""
    if spec.get("autoscale"):
        yield _line("Autoscale:", f"towards {spec.get('maxReplicas', _NONE)} while there is room")
    policy = spec.get("schedulingPolicy") or {}
    if policy.get("queue"):
        yield _line("Queue:", f"{policy['queue']}, priority {policy.get('priority', 0)}")


def _conditions(job: Object, now: datetime) -> Text | None:
    rows = [
        [
            str(each.get("type", "")),
            str(each.get("status", "")),
            since(each.get("lastTransitionTime"), now),
            str(each.get("reason", "")),
            str(each.get("message", "")),
        ]
        for each in waiting.status_of(job).get("conditions") or []
    ]
    return columns(["Type", "Status", "Since", "Reason", "Message"], rows, "  ") if rows else None


def _replicas(job: Object) -> Text | None:
    """Return the counts of each type, in the shape of `kubectl describe`."""
    lines: list[str] = []
    for type, counts in (waiting.status_of(job).get("replicaStatuses") or {}).items():
        lines.append(f"  {type}:")
        lines += [f"    {name.capitalize() + ':':<11}{counts.get(name, 0)}" for name in _counted(counts)]
    return Text("\n".join(lines)) if lines else None


def _counted(counts: Mapping[str, Any]) -> list[str]:
    return [name for name in ("active", "pending", "succeeded", "failed") if name == "active" or counts.get(name)]


def _pods(view: View, now: datetime) -> Text | None:
    low = waiting.bounds(view.job)[0] * waiting.pods_each(view.job)
    pods = [pod for pod in view.pods if not isinstance(pod, str)]
    if len(pods) > MOST_PODS:
        return _many_pods(pods, low, now)
    return _pod_table([_pod_row(pod, pod_state(pod), low, now) for pod in pods]) if pods else None


def _many_pods(pods: Sequence[Object], low: int, now: datetime) -> Text:
    """Return the counts by state, a row for each pod that needs attention, and the indexes of the others."""
    states = [(_exact_state(pod), pod) for pod in pods]
    counts = Counter(state for state, _ in states)
    rows, rest = attention(states)
    blocks = [Text(f"  {len(pods)} pods: {', '.join(f'{count} {state}' for state, count in counts.most_common())}")]
    if rows:
        blocks.append(_pod_table([_pod_row(pod, state, low, now) for state, pod in rows]))
    blocks += [Text(line) for line in _ranges(rest, {state for state, _ in rows})]
    return Text("\n").join(blocks)


def attention(states: Iterable[tuple[str, Object]]) -> tuple[list[tuple[str, Object]], list[tuple[str, Object]]]:
    """Return the pods that get a row, at most MOST_ROWS, and the others, each with its state.

    The rarest states come first: among hundreds of pods that wait for a node, the two that fail must be seen.
    """
    found = list(states)
    counts = Counter(state for state, _ in found)
    unwell = sorted((each for each in found if each[0] not in _WELL), key=lambda each: (counts[each[0]], each[0]))
    rows = unwell[:MOST_ROWS]
    return rows, [*unwell[MOST_ROWS:], *(each for each in found if each[0] in _WELL)]


def _ranges(pods: Iterable[tuple[str, Object]], shown: Iterable[str]) -> Iterator[str]:
    """Yield a line for each state; `shown` are the states that have rows."""
    by_state: dict[str, list[str]] = {}
    for state, pod in pods:
        by_state.setdefault(state, []).append(str(pod["metadata"]["name"]))
    for state, found in by_state.items():
        listed = shortened(indexes.listed(found), _MOST_CHARACTERS)
        yield f"  {len(found)} {'more ' if state in shown else ''}{state}: {listed}"


def _exact_state(pod: Object) -> str:
    """Return a pod's state, with those that run and aren't ready apart."""
    state = pod_state(pod)
    conditions = (pod.get("status") or {}).get("conditions") or []
    unready = any(each.get("type") == "Ready" and each.get("status") != "True" for each in conditions)
    return _NOT_READY if state == "Running" and unready else state


def _pod_table(rows: Sequence[Sequence[str]]) -> Text:
    return columns(["Name", "Role", "State", "Node", "Restarts", "Age"], rows, "  ")


def _pod_row(pod: Object, state: str, low: int, now: datetime) -> list[str]:
    type, index = worker_of(pod)
    status = pod.get("status") or {}
    restarts = sum(int(each.get("restartCount") or 0) for each in status.get("containerStatuses") or [])
    tier = pod["metadata"]["labels"].get(names.LABEL_TIER) or (names.CORE if index < low else names.SURGE)
    return [
        str(pod["metadata"]["name"]),
        tier if type == names.WORKER.lower() else type,
        state,
        str((pod.get("spec") or {}).get("nodeName") or _NONE),
        str(restarts),
        since(pod["metadata"].get("creationTimestamp"), now),
    ]


def _events(events: Sequence[Object] | str, now: datetime) -> Text | None:
    rows = [_event_row(each, now) for each in events[-MOST_EVENTS:] if not isinstance(each, str)]
    return columns(["Type", "Reason", "Age", "Message"], rows, "  ") if rows else None


def _pod_events(events: Sequence[Object] | str, now: datetime) -> Text | None:
    newest = [each for each in events[-MOST_EVENTS:] if not isinstance(each, str)]
    rows = [[str(each["involvedObject"].get("name", "")), *_event_row(each, now)] for each in newest]
    return columns(["Pod", "Type", "Reason", "Age", "Message"], rows, "  ") if rows else None


def _event_row(event: Object, now: datetime) -> list[str]:
    count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
    often = f" (x{count})" if count > 1 else ""
    return [
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{since(last_seen(event), now)}{often}",
        str(event.get("message") or event.get("note") or "").strip().replace("\n", " "),
    ]


def _block(title: str, content: Text | None) -> Text:
    return Text.assemble(title, " ", _NONE) if content is None else Text.assemble(title, "\n", content)


def _unreadable(found: Sequence[Object] | str) -> Text | None:
    return Text(f"  {found}", style="yellow") if isinstance(found, str) else None


def _line(label: str, value: str, colour: str = "") -> Text:
    return Text.assemble(label.ljust(_LABEL_WIDTH), (value, colour))


def _unschedulable(status: Mapping[str, Any]) -> bool:
    return any(
        each.get("type") == "PodScheduled" and each.get("status") == "False" for each in status.get("conditions") or []
    )
