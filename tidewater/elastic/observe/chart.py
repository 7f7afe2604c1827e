"""The picture of a report: world size, loss and throughput over time, with the changes of the membership.

    draw(history, Path("report.png"))       # or .svg or .pdf

matplotlib is imported only here, because the pods don't have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.observe.report import Change, History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"lost": "tab:red", "left": "tab:orange", "joined": "tab:green", "start": "tab:grey"}
_MOST_ROWS = 6
"""If the labels of the changes need more rows than this, the picture counts the changes in a legend instead."""
_FONT_POINTS = 7
_LETTER_POINTS = 0.62 * _FONT_POINTS
"""Width of a letter: more than the mean of matplotlib's default font."""
_AXES_POINTS = 600
"""Width of the axes: less than they have in the layout, which depends on the labels."""
_ROW_HEIGHT = 0.1
"""Of the height of the upper axes."""


def draw(seen: History, out: Path) -> None:
    """Write the picture; its format follows the file's suffix.

    Raise ConfigError if matplotlib is absent, the suffix is unknown to it, or the file can't be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("the picture needs matplotlib: pip install matplotlib, or give --no-picture") from error
    # A figure by itself, without pyplot: it has no global state and looks for no window toolkit.
    figure = Figure(figsize=(11, 8), layout="constrained")
    plot(figure, seen)
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--out {out}: the picture cannot be written: {error}") from error


def plot(figure: Figure, seen: History) -> None:
    """Draw the curves and the changes into an empty figure."""
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


def label_rows(starts: Sequence[float], widths: Sequence[float]) -> list[int]:
    """Return a row, counted from 0 upwards, for each label, so that labels of one row do not overlap.

    A label begins at its start and extends to the right. Rows are filled from the right.
    """
    free_until: list[float] = []  # for each row: where its leftmost label begins
    rows = [0] * len(starts)
    for index in sorted(range(len(starts)), key=lambda each: starts[each], reverse=True):
        end = starts[index] + widths[index]
        row = next((row for row, edge in enumerate(free_until) if end <= edge), len(free_until))
        free_until[row : row + 1] = [starts[index]]
        rows[index] = row
    return rows


def _label(axes: Axes, seen: History) -> None:
    """Write cause and seconds of each change above the picture; if there are too many, count them by cause."""
    times = [(change.at - seen.points[0].at).total_seconds() for change in seen.changes]
    texts = [f"{change.cause} {change.seconds:.2g} s" for change in seen.changes]
    left, right = axes.get_xlim()
    starts = [(time - left) / (right - left) for time in times]
    # Two letters more than the text has keep labels apart.
    rows = label_rows(starts, [(len(text) + 2) * _LETTER_POINTS / _AXES_POINTS for text in texts])
    if max(rows, default=0) >= _MOST_ROWS:
        _legend(axes, seen)
        return
    for change, time, text, row in zip(seen.changes, times, texts, rows, strict=True):
        axes.annotate(
            text,
            (time, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(time, 1.04 + row * _ROW_HEIGHT),
            textcoords=("data", "axes fraction"),
            fontsize=_FONT_POINTS,
            color=_colour(change),
            # The line starts at the corner of the text and passes behind the labels below.
            arrowprops={
                "arrowstyle": "-",
                "color": _colour(change),
                "linewidth": 0.7,
                "relpos": (0, 0),
                "shrinkA": 0,
                "shrinkB": 0,
                "zorder": 1,
            },
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            zorder=3 - row / _MOST_ROWS,
        )


def _legend(axes: Axes, seen: History) -> None:
    for cause in sorted({change.cause for change in seen.changes}):
        count = sum(change.cause == cause for change in seen.changes)
        axes.plot([], [], color=_COLOURS.get(cause, "tab:grey"), label=f"{cause} ({count})")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(_COLOURS), fontsize=8, frameon=False)


def _colour(change: Change) -> str:
    return _COLOURS.get(change.cause, "tab:grey")
