"""Draw what the dashboard shows, from the answers of a real Prometheus: the picture in docs/monitoring.md.

Grafana itself can't be had where these tests run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.e2e.life.prometheus.server import Series
from workloads.monitoring.dashboard import Panel

COLUMNS = 3


def draw(panels: Sequence[tuple[Panel, Mapping[str, Series]]], target: Path) -> None:
    """Write the panels that are charts as one picture; the time is in minutes since the first value of all."""
    mpl.use("agg")
    charts = [(panel, found) for panel, found in panels if not panel.number]
    rows = math.ceil(len(charts) / COLUMNS)
    figure = Figure(figsize=(5 * COLUMNS, 2.8 * rows), layout="constrained")
    start = min(time for _, found in charts for series in found.values() for time, _ in series.points)
    for place, (panel, found) in enumerate(charts, 1):
        _chart(figure.add_subplot(rows, COLUMNS, place), panel, found, start)
    figure.savefig(target, dpi=80)


def _chart(axes: Axes, panel: Panel, found: Mapping[str, Series], start: float) -> None:
    scale = {"percentunit": 100.0, "bytes": 2.0**-30}.get(panel.unit, 1.0)
    unit = {"percentunit": "%", "bytes": "GiB", "s": "s"}.get(panel.unit, "")
    for name, series in found.items():
        times = [(time - start) / 60 for time, _ in series.points]
        values = [value * scale for value in series.values]
        if panel.bars:
            axes.step(times, values, where="mid", label=name)
        else:
            axes.plot(times, values, label=name)
    axes.set_title(f"{panel.title} [{unit}]" if unit else panel.title, fontsize=10)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if found:
        axes.legend(fontsize=7, loc="best")
