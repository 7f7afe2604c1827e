"""The labels in the picture of a report are readable even if the changes are close to each other."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from tidewater.elastic.observe import chart, report

RECORDED = Path(__file__).parent / "recorded.log"


def lines(*changes_at: float) -> list[str]:
    """Return the log of a worker with a step per second for 100 s and membership changes at these seconds."""
    steps = [
        f"step={second} epoch=1 world_size=2 generation=1 loss=0.5 samples_per_s=100 rank=0 "
        f"worker=w-0 time=2026-01-01T00:{second // 60:02d}:{second % 60:02d}.000Z"
        for second in range(1, 101)
    ]
    changes = [
        f"event=recovered seconds=0.1203 cause=joined step=1 world_size=2 generation={2 + index} "
        f"worker=w-0 time=2026-01-01T00:{int(second) // 60:02d}:{second % 60:06.3f}Z"
        for index, second in enumerate(changes_at)
    ]
    return steps + changes


def drawn(seen: report.History) -> tuple[Figure, list[tuple[str, Bbox]]]:
    """Return the figure, and each label in it with the bounding box of its text."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    chart.plot(figure, seen)
    figure.draw_without_rendering()
    labels = [child for child in figure.axes[0].get_children() if isinstance(child, Annotation)]
    return figure, [(label.get_text(), Text.get_window_extent(label)) for label in labels]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 0.3)), max_size=30, unique_by=lambda label: label[0]),
)
def test_labels_of_one_row_do_not_overlap(
    labels: list[tuple[float, float]],
) -> None:
    rows = chart.label_rows([start for start, _ in labels], [width for _, width in labels])
    for row in range(max(rows, default=-1) + 1):
        in_row = sorted(label for label, where in zip(labels, rows, strict=True) if where == row)
        assert in_row, "no row is empty"
        assert all(start + width <= following for (start, width), (following, _) in pairwise(in_row))


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(report.read([RECORDED]), id="a recorded run"),
        pytest.param(
            report.history(lines(2, 2.1, 50, 53, 56, 59, 98, 98.5, 99), source="x"), id="changes at both ends"
        ),
        pytest.param(report.history(lines(*range(5, 95, 3)), source="x"), id="changes all the time"),
    ],
)
def test_no_label_overlaps_another_or_extends_beyond_the_picture(seen: report.History) -> None:
    figure, labels = drawn(seen)
    assert len(labels) == len(seen.changes)
    for (one, box), (other, its_box) in combinations(labels, 2):
        assert not box.overlaps(its_box), f"{one} and {other}"
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for _, box in labels)


def test_too_many_changes_for_labels_are_counted_in_a_legend() -> None:
    figure, labels = drawn(report.history(lines(*(40 + index / 10 for index in range(20))), source="x"))
    assert not labels
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["joined (20)"]
