"""The workers' metrics: where they are served, and what their text says. Pure.

    for port in metrics_ports(pod):
        reading(cluster.proxy(pod_name, port, "/metrics"), at=time.monotonic())

Each process of a worker serves its own metrics. The names are those of `tidewater/elastic/observe/metrics.py`, and
docs/training/watch.md says what each of them means. Others' metrics are skipped.
https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewater.contract import env

Object = Mapping[str, Any]

_PREFIX = "tidewater_"
_PORT_NAME = "metrics"
_PORT_ANNOTATION = "prometheus.io/port"
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Recoveries:
    """How often training stopped for a change of the membership, and for how many seconds altogether."""

    count: int = 0
    seconds: float = 0.0

    def __add__(self, other: Recoveries) -> Recoveries:
        return Recoveries(self.count + other.count, self.seconds + other.seconds)

    def __sub__(self, other: Recoveries) -> Recoveries:
        return Recoveries(self.count - other.count, self.seconds - other.seconds)


@dataclass(frozen=True)
class Reading:
    """What the metrics of one process of a worker say.

    A process that has not committed a step yet has only `at`, and zeros. A field that it does not export is None.
    """

    at: float
    """Monotonic time of the reading, in seconds."""
    steps: int = 0
    """Steps committed with this process in them."""
    samples: float = 0.0
    """Samples in these steps, this process's share."""
    rank: int | None = None
    generation: int | None = None
    world_size: int | None = None
    step: int | None = None
    epoch: float | None = None
    loss: float | None = None
    goodput: float | None = None
    straggler: float = 0.0
    """How many seconds longer its part of a step takes than the others', if it is the slow one; otherwise 0."""
    waited: float = 0.0
    """Seconds in these steps for which it waited for the others."""
    recoveries: Mapping[str, Recoveries] = field(default_factory=dict)
    """By cause."""

    @property
    def waits(self) -> float:
        """Return the seconds of a step for which it waits for the others, on average."""
        return self.waited / self.steps if self.steps else 0.0


@dataclass(frozen=True)
class Scraped:
    """What was learned from the metrics of one pod."""

    readings: Mapping[int, Reading] = field(default_factory=dict)
    """By port: one for each of its processes that has answered."""
    silence: str = ""
    """Why there is no reading of a process that should have one."""
    unasked: int = 0
    """Processes that were not asked in this look; their readings are older."""


def metrics_ports(pod: Object) -> tuple[int, ...]:
    """Return the ports of a pod that serve metrics; none for workers without any.

    These are the container ports named `metrics`, `metrics-1` …; without them, the port of Prometheus' annotation;
    without that, the one that the trainer gets from its environment.
    """
    containers = pod["spec"].get("containers", [])
    named = [
        int(port["containerPort"])
        for container in containers
        for port in container.get("ports") or []
        if str(port.get("name", "")).split("-")[0] == _PORT_NAME
    ]
    if named:
        return tuple(named)
    texts = [(pod["metadata"].get("annotations") or {}).get(_PORT_ANNOTATION)]
    texts += [
        variable.get("value")
        for container in containers
        for variable in container.get("env") or []
        if variable.get("name") == env.METRICS_PORT
    ]
    return next(((int(text),) for text in texts if text and text.isdigit() and text != "0"), ())


def reading(text: str, *, at: float) -> Reading:
    """Return what the text of one process says; lines that are not in Prometheus' format are skipped."""
    values: dict[str, float] = {}
    recoveries: dict[str, Recoveries] = {}
    for name, labels, value in _samples(text):
        cause = labels.get("cause", "")
        if name == "recovery_seconds_count":
            recoveries[cause] = recoveries.get(cause, Recoveries()) + Recoveries(count=int(value))
        elif name == "recovery_seconds_sum":
            recoveries[cause] = recoveries.get(cause, Recoveries()) + Recoveries(seconds=value)
        elif not labels:
            values[name] = value
    recoveries = {cause: found for cause, found in recoveries.items() if found.count}
    steps = _whole(values.get("committed_steps_total")) or 0
    if steps == 0:  # the gauges are 0 because nothing has set them
        return Reading(at=at, recoveries=recoveries)
    return Reading(
        at=at,
        steps=steps,
        samples=values.get("samples_total", 0.0),
        rank=_whole(values.get("rank")),
        generation=_whole(values.get("generation")),
        world_size=_whole(values.get("world_size")),
        step=_whole(values.get("step")),
        epoch=values.get("epoch"),
        loss=values.get("loss"),
        goodput=values.get("goodput_ratio"),
        straggler=values.get("straggler_seconds", 0.0),
        waited=values.get("wait_seconds_total", 0.0),
        recoveries=recoveries,
    )


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name without the prefix, labels and value of each of the trainer's samples."""
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line)
        if found is None or not found["name"].startswith(_PREFIX):
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        yield found["name"].removeprefix(_PREFIX), dict(_LABEL.findall(found["labels"] or "")), value


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and math.isfinite(value) else None
