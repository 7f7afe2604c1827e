"""The model as what rich prints: tables that fit into the terminal, sparklines and the last changes. Pure.

    console.print(screen(model, Size(columns=100, lines=30)))

One job is shown with its workers; several are shown with one line for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidewater.cli.show import age, shortened, style
from tidewater.cli.top import crowd
from tidewater.cli.top.changes import Line, Mood
from tidewater.cli.top.model import Followed, Model
from tidewater.cli.top.samples import Job, Worker
from tidewater.cli.top.scrape import Reading, Recoveries


@dataclass(frozen=True)
class Shape:
    """What gives way in a narrow terminal."""

    leave: tuple[str, ...]
    """Columns that are left out, the first one first."""
    flexible: str = ""
    """The column that gets what the others leave."""


_BARS = "▁▂▃▄▅▆▇█"
_NONE = "-"
_MOOD_STYLES = {Mood.GOOD: "green", Mood.BAD: "red", Mood.PLAIN: ""}
_WORKER_STYLES = {"Running": "green", "Succeeded": "green", "Pending": "yellow", "Ending": "yellow"}
_WORKER_COLUMNS = ("WORKER", "STATE", "KIND", "RESTARTS", "RANK", "GENERATION", "STEP", "NODE")
_WORKERS_SHAPE = Shape(leave=("GENERATION", "RESTARTS", "KIND", "NODE"), flexible="NODE")
_JOB_COLUMNS = ("JOB", "STATE", "ACTIVE", "STEP", "LOSS", "SAMPLES/S", "RECOVERIES", "GOODPUT", "AGE")
_JOBS_SHAPE = Shape(leave=("AGE", "RECOVERIES", "GOODPUT", "SAMPLES/S", "LOSS", "STEP", "NAMESPACE"))
_CURVE_COLUMNS = 60
_SHORT_CURVE_COLUMNS = 12
_MESSAGE_LINES = 3
"""Lines of what a job waits for, at most."""
_JOB_LINES = 14
"""Lines of one job besides its workers and changes, at most, with one line of what it waits for."""
_TABLE_LINES = 3
"""Lines of a table of jobs besides the jobs and changes, at most."""
_CROWD_LINES = 4
"""Lines in addition to these about many workers."""
_FEWEST_ROWS = 3
"""Rows of many workers, however low the terminal is."""
_FEWEST_LINES = 3
"""Changes that are shown however low the terminal is."""
_GAP = 2
_FEWEST = 8
"""Characters of a column that is shortened."""


@dataclass(frozen=True)
class Size:
    """The room on the terminal, in characters."""

    columns: int
    lines: int


def screen(model: Model, size: Size) -> RenderableType:
    """Return everything that is shown."""
    if not model.jobs:
        shown: list[RenderableType] = [Text(model.none, style="yellow")]
    elif len(model.jobs) == 1:
        shown = _one_job(model, size)
    else:
        shown = [_jobs_table(model, size)]
    if len(model.jobs) == 1:
        used = _lines_used(model.jobs[0].job, size)
    else:
        shown += [Text(text, style="dim") for text in _turns(model)]
        used = len(model.jobs) + _TABLE_LINES
    lines = model.lines[-max(_FEWEST_LINES, size.lines - used) :]
    shown += [Text(), *map(_change, lines)] if lines else []
    if model.trouble:
        shown.append(Text(f"as of {_clock(model.at)}: {model.trouble}", style="bold red"))
    return Group(*shown)


def sparkline(values: Sequence[float], columns: int, *, from_zero: bool = False) -> str:
    """Return the newest values as bars, one character each, from the lowest value (or 0) to the highest.

    Values that are not finite are shown as `!`.
    """
    newest = values[-columns:]
    finite = [value for value in newest if math.isfinite(value)]
    if not finite:
        return "!" * len(newest)
    low, high = (min(0.0, *finite) if from_zero else min(finite)), max(finite)
    return "".join(_bar(value, low, high) for value in newest)


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "!"
    share = (value - low) / (high - low) if high > low else 0.0
    return _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))]


def _lines_used(job: Job, size: Size) -> int:
    """Return the lines of everything but the changes."""
    rows = len(job.workers)
    if rows > crowd.MOST_ROWS:
        rows = _rows(size) + _CROWD_LINES
    return rows + _JOB_LINES + len(_message(job, size)) // size.columns


def _rows(size: Size) -> int:
    """Return how many of many workers have a row."""
    return min(crowd.MOST_ROWS, max(_FEWEST_ROWS, size.lines - _JOB_LINES - _CROWD_LINES - _FEWEST_LINES))


def _turns(model: Model) -> list[str]:
    """Return, as one text or none, how many of many workers are asked."""
    return [crowd.turns(sum(len(each.job.workers) for each in model.jobs), model.answers)] * model.answers.in_turn


def _one_job(model: Model, size: Size) -> list[RenderableType]:
    (followed,), at = model.jobs, model.at
    job, lead = followed.job, followed.lead
    heading = Text.assemble(
        (job.name, "bold"),
        f"  {job.namespace}  ",
        (job.state, style(job.state)),
        f"  desired {job.desired} ({job.minimum} to {job.maximum})  active {job.active}"
        f"  failures {job.failures}  {age(_seconds(job, at))}  {_clock(at)}",
    )
    shown: list[RenderableType] = [heading]
    if message := _message(job, size):
        shown.append(Text(message, style="yellow" if job.waiting else style(job.state)))
    many = len(job.workers) > crowd.MOST_ROWS
    shown += [Text(), _figures(followed, lead, size)]
    shown += [_figure(label, text) for label, text in crowd.summary(job.workers)] if many else []
    shown += [Text(), *(Text(text, style="dim") for text in _turns(model))]
    shown.append(_workers_table(crowd.worst(job.workers, _rows(size)) if many else job.workers, size))
    return shown


def _message(job: Job, size: Size) -> str:
    """Return why a job doesn't run, or not with all its workers; empty if it does."""
    if job.state == "Running" and not job.waiting:
        return ""
    return shortened(job.message, _MESSAGE_LINES * size.columns)


def _figures(followed: Followed, lead: Reading | None, size: Size) -> RenderableType:
    """Return the curves and numbers of the training, or why there are none."""
    if lead is None:
        return Text(_without_metrics(followed.job.workers), style="dim")
    columns = max(10, min(_CURVE_COLUMNS, size.columns - 30))
    loss = _curve(followed.loss.points, columns)
    throughput = _curve(followed.throughput.points, columns, from_zero=True)
    rows: tuple[tuple[str, str | Text], ...] = (
        ("training", f"step {_number(lead.step)}  epoch {_number(lead.epoch)}"),
        ("membership", f"world size {_number(lead.world_size)}  generation {_number(lead.generation)}"),
        ("loss", Text.assemble(loss, f"  {_number(lead.loss)}")),
        ("samples/s", Text.assemble(throughput, f"  {_rate(followed)}")),
        ("goodput", _percent(followed.goodput)),
        ("recoveries", _recoveries(followed.recoveries.items())),
    )
    rows += tuple(("straggler", text) for text in _stragglers(followed.job.workers))
    return Group(*(_figure(label, value) for label, value in rows))


def _figure(label: str, value: str | Text) -> Text:
    return Text.assemble((f"{label:<12}", "dim"), value, no_wrap=True)


def _stragglers(workers: Iterable[Worker]) -> Iterator[Text]:
    """Yield for which worker the others wait in each step, and how long; nothing if none of them is slow.

    A worker that has become one may still be waiting to be judged again, so only the slowest is named.
    """
    slow = [(reading.straggler, worker) for worker in workers for reading in worker.scraped.readings.values()]
    seconds, worker = max(slow, key=lambda each: each[0], default=(0.0, None))
    if worker and seconds:
        place = f" on {worker.node}" if worker.node else ""
        yield Text(f"{worker.name}{place}: the others wait {seconds:.3g} s for it in each step", style="yellow")


def _without_metrics(workers: Sequence[Worker]) -> str:
    """Return why there are no numbers."""
    silent = next((worker.scraped.silence for worker in workers if worker.scraped.silence), "")
    if silent:
        return f"no metrics: {silent}"
    if any(worker.scraped.readings for worker in workers):
        return "no step yet"
    running = any(worker.state == "Running" for worker in workers)
    return "no metrics: its pods declare no port named metrics" if running else "no worker runs"


def _workers_table(workers: Iterable[Worker], size: Size) -> Table:
    rows = []
    for worker in workers:
        trained = [each for each in worker.scraped.readings.values() if each.steps]
        rows.append(
            [
                Text(worker.name),
                Text(worker.state, style=_WORKER_STYLES.get(worker.state, "red")),
                Text("core" if worker.core else "surge"),
                Text(str(worker.restarts)),
                Text(_ranks([each.rank for each in trained if each.rank is not None])),
                Text(_number(max((each.generation or 0 for each in trained), default=None))),
                Text(_number(max((each.step or 0 for each in trained), default=None))),
                Text(worker.node or _NONE),
            ]
        )
    return fitted(_WORKER_COLUMNS, rows, _WORKERS_SHAPE, size.columns)


def _jobs_table(model: Model, size: Size) -> Table:
    several = len({each.job.namespace for each in model.jobs}) > 1
    rows = []
    for each in model.jobs:
        job, lead = each.job, each.lead
        loss = _curve(each.loss.points, _SHORT_CURVE_COLUMNS)
        throughput = _curve(each.throughput.points, _SHORT_CURVE_COLUMNS, from_zero=True)
        rows.append(
            [
                *([Text(job.namespace)] if several else []),
                Text(job.name),
                Text(job.state, style=style(job.state)),
                Text(f"{job.active}/{job.desired}"),
                Text(_number(lead.step if lead else None)),
                Text.assemble(loss, " ", _number(lead.loss if lead else None)),
                Text.assemble(throughput, " ", _rate(each)),
                Text(str(sum(found.count for cause, found in each.recoveries.items() if cause != "start"))),
                Text(_percent(each.goodput)),
                Text(age(_seconds(job, model.at))),
            ]
        )
    return fitted([*(["NAMESPACE"] if several else []), *_JOB_COLUMNS], rows, _JOBS_SHAPE, size.columns)


def _curve(points: Sequence[float], columns: int, *, from_zero: bool = False) -> Text:
    return Text(sparkline(points, columns, from_zero=from_zero), style="cyan")


def _change(line: Line) -> Text:
    return Text(f"{_clock(line.at)}  {line.text}", style=_MOOD_STYLES[line.mood], no_wrap=True, overflow="ellipsis")


def _recoveries(found: Iterable[tuple[str, Recoveries]]) -> str:
    """Return the recoveries by cause, with their mean time: `lost 2 (0.12 s)`."""
    parts = [f"{cause} {each.count} ({each.seconds / each.count:.2f} s)" for cause, each in sorted(found)]
    return "  ".join(parts) or "none"


def _ranks(ranks: Sequence[int]) -> str:
    """Return the ranks of a worker's processes: `2`, or `0,1,3`."""
    return ",".join(map(str, sorted(ranks))) or _NONE


def _rate(followed: Followed) -> str:
    last = followed.throughput.last
    return _NONE if last is None else f"{last:.0f}"


def _percent(share: float | None) -> str:
    return _NONE if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _seconds(job: Job, at: datetime) -> float:
    return ((job.ended or at) - job.since).total_seconds()


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}"


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
