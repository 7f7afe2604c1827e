"""The picture of a report: world size, loss and throughput over time, changes of the membership marked.

    draw(history, Path("report.png"))       # or .svg or .pdf

matplotlib is imported only here: the pods don't have it and don't need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer.errors import ConfigError
from trainer.observe.report import Change, History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"lost": "tab:red", "left": "tab:orange", "joined": "tab:green", "start": "tab:grey"}
_LABELLED = 40
"""With more changes than this, their seconds would cover one another."""


def draw(seen: History, out: Path) -> None:
    """Write the picture; its format follows the file's suffix.

    Raises ConfigError if matplotlib is absent, the suffix is unknown to it, or the file can't be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("the picture needs matplotlib: pip install matplotlib, or give --no-picture") from error
    # A figure by itself, without pyplot: no global state, and no window toolkit is looked for.
    figure = Figure(figsize=(11, 8), layout="constrained")
    size, loss, rate = figure.subplots(3, 1, sharex=True, height_ratios=(1, 2, 2))
    began = seen.points[0].at
    times = [(point.at - began).total_seconds() for point in seen.points]
    size.step(times, [point.world_size for point in seen.points], where="post", color="tab:blue")
    size.set_ylim(0, max(point.world_size for point in seen.points) + 0.9)
    size.yaxis.get_major_locator().set_params(integer=True)
    size.set_ylabel("world size")
    loss.plot(times, [point.loss for point in seen.points], color="tab:blue", linewidth=1)
    loss.set_ylabel("loss")
    if min(point.loss for point in seen.points) > 0:
        loss.set_yscale("log")
    rate.plot(times, [point.samples_per_s for point in seen.points], color="tab:blue", linewidth=1)
    rate.set_ylim(bottom=0)
    rate.set_ylabel("samples/s")
    rate.set_xlabel(f"seconds since {began:%Y-%m-%d %H:%M:%S} UTC")
    for axes in (size, loss, rate):
        axes.grid(alpha=0.3)
        for change in seen.changes:
            axes.axvline((change.at - began).total_seconds(), color=_colour(change), linewidth=1, alpha=0.7)
    _label(size, seen)
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--out {out}: the picture cannot be written: {error}") from error


def _label(axes: Axes, seen: History) -> None:
    """The seconds of each change above the picture, and what the colours mean."""
    if len(seen.changes) <= _LABELLED:
        for change in seen.changes:
            axes.annotate(
                f"{change.cause} {change.seconds:.2g} s",
                ((change.at - seen.points[0].at).total_seconds(), 1.0),
                xycoords=("data", "axes fraction"),
                rotation=45,
                fontsize=7,
                color=_colour(change),
            )
        return
    for cause in sorted({change.cause for change in seen.changes}):
        count = sum(change.cause == cause for change in seen.changes)
        axes.plot([], [], color=_COLOURS.get(cause, "tab:grey"), label=f"{cause} ({count})")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.35), ncols=len(_COLOURS), fontsize=8, frameon=False)


def _colour(change: Change) -> str:
    return _COLOURS.get(change.cause, "tab:grey")
