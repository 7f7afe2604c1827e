"""Tables that fit into the terminal: a column is left out before a number is cut. Pure.

fitted(["WORKER", "STEP", "NODE"], rows, Shape(leave=("NODE",), flexible="NODE"), 40)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

_GAP = 2
_FEWEST = 8
"""Characters of a column that is shortened."""


@dataclass(frozen=True)
class Shape:
    """What gives way in a narrow terminal."""

    leave: tuple[str, ...]
    """Columns that are left out, the first one first."""
    flexible: str = ""
    """The column that gets what the others leave."""


def fitted(heads: Sequence[str], rows: Sequence[Sequence[Text]], shape: Shape, columns: int) -> Table:
    """Return a table of at most so many characters in a line. A first cell that is too long keeps its end."""
    cells_by_column = zip([Text(head) for head in heads], *rows, strict=True)
    contents = {cells[0].plain: max(cell.cell_len for cell in cells) for cells in cells_by_column}
    shown = widths(contents, shape, columns)
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="bold", pad_edge=False)
    for head, width in shown.items():
        table.add_column(head, no_wrap=True, width=width)
    first = next(iter(shown))
    for row in rows:
        cells = dict(zip(heads, row, strict=True))
        cells[first] = _end(cells[first], shown[first])
        table.add_row(*(cells[head] for head in shown))
    return table


def widths(contents: Mapping[str, int], shape: Shape, columns: int) -> dict[str, int]:
    """Return the columns that are shown, with their widths; `contents` are all columns, with those of their content.

    If too little is left even for those that always stay, the first one is shortened.
    """
    shown = dict(contents)
    for head in shape.leave:
        spare = max(0, shown.get(shape.flexible, 0) - _FEWEST)
        if _total(shown) - spare <= columns:
            break
        shown.pop(head, None)
    for head in (shape.flexible, next(iter(shown))):
        if head in shown:
            excess = max(0, _total(shown) - columns)
            shown[head] = max(min(_FEWEST, shown[head]), shown[head] - excess)
    return shown


def _total(shown: Mapping[str, int]) -> int:
    return sum(shown.values()) + _GAP * (len(shown) - 1)


def _end(cell: Text, width: int) -> Text:
    """Return the end of a name: in a worker's it is the index."""
    if len(cell.plain) <= width:
        return cell
    return Text(f"…{cell.plain[1 - width :]}", style=cell.style)
