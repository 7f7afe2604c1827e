"""What workers say of a job that makes no step, and the sentence for its condition. Pure.

    silent = judged(answers, before=None, now=now)
    sentence(silent, pods)          # " No step since 12:00:03 UTC: it waits for digits-worker-1 on node ip-10-0-0-7."

Workers decide when a job is silent, by their flag `--silent-seconds`: docs/training/watch.md says how they know
which of them the others wait for. Their answers are not trusted further than that: only names of the job's own pods
are repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidewater.controller.decide.observed import PodView

MOST_NAMES = 5
"""Workers that are named."""

_SAMPLE = re.compile(r'^tidewater_silent_seconds\{waits_for="([^"\\]*)"\} (\d+(?:\.\d+)?(?:e\+\d+)?)$', re.MULTILINE)
_LONGEST_SECONDS = 1e8
_SAME = timedelta(seconds=10)
"""Times that differ by less are of the same silence: workers are asked one after the other, and their clocks differ."""


@dataclass(frozen=True)
class Silence:
    """A job makes no step."""

    since: datetime
    workers: tuple[str, ...]
    """Pods that the others wait for, in order, with the number of the process where there are several; empty if it is
    not known."""


def said(metrics: str) -> tuple[float, frozenset[str]]:
    """Return what the metrics of one process say: the seconds without a step, and for which workers the job waits.

    0 seconds: this process does not say that the job is silent.
    """
    found = _SAMPLE.findall(metrics)
    seconds = min(max((float(each) for _, each in found), default=0.0), _LONGEST_SECONDS)
    return seconds, frozenset(name for name, _ in found if name)


def judged(answers: Mapping[str, Sequence[str]], before: Silence | None, now: datetime) -> Silence | None:
    """Return whether a job is silent.

    Args:
        answers: For each of its pods the metrics of its processes; of one that doesn't answer an empty text.
        before: What was known until now. It stays if no pod answers.
        now: The time.
    """
    texts = {pod: [text for text in found if text] for pod, found in answers.items()}
    if not any(texts.values()):
        return before
    told = [said(text) for found in texts.values() for text in found]
    seconds = max(each for each, _ in told)
    if not seconds:
        return None
    names = {name for _, workers in told for name in workers if name.partition("/")[0] in answers}
    workers = tuple(sorted(names or {pod for pod, found in texts.items() if not found}))
    since = (now - timedelta(seconds=seconds)).replace(microsecond=0)
    if before is not None and abs(since - before.since) < _SAME:
        since = before.since
    return Silence(since, workers)


def sentence(silent: Silence | None, pods: Mapping[str, PodView]) -> str:
    """Return what the job's condition says; empty if the job is not silent. `pods` are its own, by name."""
    if silent is None:
        return ""
    start = f" No step since {silent.since:%H:%M:%S} UTC"
    if not silent.workers:
        return f"{start}: it is not known which worker it waits for."
    places = ((name, pods.get(name.partition("/")[0])) for name in silent.workers[:MOST_NAMES])
    shown = [f"{name} on node {pod.node}" if pod and pod.node else name for name, pod in places]
    if len(silent.workers) > MOST_NAMES:
        shown.append(f"{len(silent.workers) - MOST_NAMES} others")
    return f"{start}: it waits for {', '.join(shown)}."
