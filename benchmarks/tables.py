"""Renders the tables of the documentation from the committed records, so that no figure is typed by hand.

    python -m benchmarks.tables             # print them
    python -m benchmarks.tables --write     # put them into the documents, between <!-- rows: NAME --> and <!-- end -->

A table for which there are no records stays as it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.controller import plan as controller_plan
from benchmarks.controller import results as controller_results
from benchmarks.elastic import faults, results
from benchmarks.elastic.systems import SYSTEMS
from benchmarks.elastic.workers import names
from benchmarks.elasticdl import systems as elasticdl_systems
from benchmarks.harness.records import RESULTS, ROOT, Record, Row, origin, ratios, read, rows
from benchmarks.membership import results as membership_results
from tidewater.elastic.observe import report

RECORDED = ROOT / "tests" / "elastic" / "observe" / "recorded.log"
"""Written by `benchmarks.recording`."""
TITLES = {
    "tidewater": "Tidewater",
    "tidewater restarted": "Tidewater, torch before 2.14",
    "torchft": "torchft, its defaults",
    "torchft 1 s": "torchft, heartbeats of 1 s",
    "torchrun tuned": "torchrun, tuned",
    "torchrun": "torchrun, its defaults",
}
LABELS = {
    faults.STEP: "a step, while nothing fails",
    faults.KILL.headline: "SIGKILL, until the next committed step",
    "SIGKILL: steps lost": "of that, steps done again",
    faults.STOP.headline: "SIGSTOP, until the next committed step",
    "SIGSTOP: steps lost": "of that, steps done again",
    faults.TERM.headline: "SIGTERM, the survivors' pause",
    "SIGTERM: steps lost": "of that, steps done again",
    f"{faults.JOIN}: pause": "a third worker joins, the others' pause",
    f"{faults.JOIN}: steps lost": "of that, steps done again",
    f"{faults.JOIN}: from the process's start": "the newcomer's wait, from the start of its process to its first step",
    results.GOODPUT: "work done during kills, of what the workers present could do",
    results.UNDISTURBED: "the same, of what all could do without kills",
}
CONTROLLERS = {
    controller_results.TIDEWATER: "Tidewater",
    controller_results.TUNED: "training-operator, tuned",
    controller_results.DEFAULTS: "training-operator, its defaults",
}
GROWTH = (
    controller_results.RATE,
    controller_results.CALLS,
    controller_results.CPU,
    controller_results.PLANE_CPU,
    controller_results.PSS,
    controller_results.RESIZE_P50,
    controller_results.RESIZE_P99,
)
"""The measures that are shown for every number of jobs."""
MEDIAN = "median (least to most)"
_UNITS = {"ratio": " times", "steps": "", "%": " %", "generations": "", "writes": "", "load": ""}


@dataclass(frozen=True)
class Table:
    """A place in a document, and what is rendered there."""

    name: str
    document: str
    files: str
    """Pattern of the files in `benchmarks/results/`."""
    render: Callable[[Sequence[Record]], str | None]

    def text(self) -> str | None:
        """Return the rendered table; None if there are not the records for it."""
        found = [record for file in sorted(RESULTS.glob(self.files)) for record in read(file)]
        return self.render(found) if found else None


def failures(records: Sequence[Record]) -> str:
    """Return the comparison of the systems with the small model."""
    return _compared([record for record in records if record.measure in LABELS])


def failures_large(records: Sequence[Record]) -> str | None:
    """Return the same for the large model; None if it has not been measured."""
    large = results.named("", names.LARGE)
    own = [
        replace(each, measure=each.measure.removeprefix(large)) for each in records if each.measure.startswith(large)
    ]
    return _compared(own) if own else None


def _compared(records: Sequence[Record]) -> str:
    """Return a line for each of the measures and a column for each system that has been measured."""
    chosen = [record for record in records if record.system in SYSTEMS]
    found = rows(chosen)
    systems = [name for name in SYSTEMS if any(row.system == name for row in found)]
    timeouts = [", ".join(f"{what} {value}" for what, value in SYSTEMS[name].timeouts.items()) for name in systems]
    lines = [["time-outs", *timeouts]]
    for measure in results.MEASURES:
        cells = {row.system: row for row in found if row.measure == measure}
        if cells:
            label = f"{LABELS[measure]} (n = {_counts(cells.values())})"
            lines.append([label, *(cell(cells.get(name)) for name in systems)])
    return f"{_grid([MEDIAN, *(TITLES[name] for name in systems)], lines)}\n\n{origin(chosen)}"


def headline(records: Sequence[Record]) -> str | None:
    """Return the two sentences of the README; None if one of their figures has not been measured."""
    found = _by_name(records)
    kill, ours = faults.KILL.headline, "tidewater"
    needed = [(kill, name) for name in (ours, "torchft", "torchrun tuned", "torchrun")]
    if not {*needed, (faults.TERM.headline, ours), (f"{faults.JOIN}: pause", ours)} <= set(found):
        return None

    def seconds(measure: str, system: str) -> str:
        return cell(found[measure, system]).partition(" (")[0]

    return (
        f"On one machine, a killed worker costs the others {seconds(kill, ours)} (torchft {seconds(kill, 'torchft')}; "
        f"torchrun {seconds(kill, 'torchrun tuned')} when tuned, {seconds(kill, 'torchrun')} with its defaults, and it "
        f"repeats steps).\nA worker that leaves costs {seconds(faults.TERM.headline, ours)}, one that joins "
        f"{seconds(f'{faults.JOIN}: pause', ours)}."
    )


def others(records: Sequence[Record]) -> str:
    """Return what is not about failures: steps, checkpoints, the transfer."""
    about_failures = {results.named(measure, model) for measure in LABELS for model in (names.SMALL, names.LARGE)}
    chosen = [record for record in records if record.measure not in about_failures]
    return f"{_listed(rows(chosen))}\n\n{origin(chosen)}" if chosen else "Not measured yet."


def listed(records: Sequence[Record]) -> str:
    """Return all records, one line for each measure and system."""
    return f"{_listed(rows(records))}\n\n{origin(records)}"


def controllers(records: Sequence[Record]) -> str | None:
    """Return the comparison of the controllers; None if none has been measured with that number of jobs."""
    jobs = controller_plan.HEADLINE
    chosen = [record for record in _small_jobs(records) if controller_results.split(record.measure)[0] == jobs]
    found = _by_name(chosen)
    rate = controller_results.named(jobs, controller_results.RATE)
    systems = [name for name in CONTROLLERS if (rate, name) in found]
    if not systems:
        return None
    lines = [["turns", *(str(found[rate, name].n) for name in systems)]]
    for measure in controller_results.UNITS:
        name = controller_results.named(jobs, measure)
        lines.append([measure, *(cell(found.get((name, system))) for system in systems)])
    heading = [f"{jobs:,} jobs, {MEDIAN}", *(CONTROLLERS[name] for name in systems)]
    return f"{_grid(heading, lines)}\n\n{origin(chosen)}"


def growth(records: Sequence[Record]) -> str:
    """Return how the controllers' figures change with the number of jobs."""
    small = _small_jobs(records)
    found = _by_name(small)
    sizes = sorted({controller_results.split(record.measure)[0] for record in small})
    lines = []
    for measure in GROWTH:
        for system, title in CONTROLLERS.items():
            each = [found.get((controller_results.named(jobs, measure), system)) for jobs in sizes]
            if any(each):
                lines.append([measure, title, *(cell(row) for row in each)])
    return _grid([MEDIAN, "", *(f"{jobs:,} jobs" for jobs in sizes)], lines)


def calls(records: Sequence[Record]) -> str | None:
    """Return the API calls for each job by their kind, with the comparison's number of jobs; None without any."""
    medians: dict[str, dict[str, float]] = {}
    for row in rows(_small_jobs(records)):
        jobs, measure = controller_results.split(row.measure)
        kind = controller_results.call_of(measure)
        if jobs == controller_plan.HEADLINE and kind:
            medians.setdefault(kind, {})[row.system] = row.median
    systems = [name for name in CONTROLLERS if any(name in each for each in medians.values())]
    if not systems:
        return None
    lines = [[kind, *(f"{each.get(name, 0):.2f}" for name in systems)] for kind, each in sorted(medians.items())]
    return _grid(["API calls for each job", *(CONTROLLERS[name] for name in systems)], lines)


def large_job(records: Sequence[Record]) -> str | None:
    """Return the figures of one job with many pods, a column for each number; None if none has been measured."""
    chosen = [each for each in records if controller_results.pods_of(each.measure)[0]]
    found = {controller_results.pods_of(row.measure): row for row in rows(chosen)}
    if not found:
        return None
    sizes = sorted({pods for pods, _ in found})
    kinds = dict.fromkeys(measure for _, measure in found if controller_results.pod_call_of(measure))
    lines = [["turns", *(str(found[pods, controller_results.ALL_CREATED].n) for pods in sizes)]]
    for measure in (*controller_results.LARGE_UNITS, *kinds):
        lines.append([measure, *(cell(found.get((pods, measure))) for pods in sizes)])
    return f"{_grid([MEDIAN, *(f'one job of {pods:,} pods' for pods in sizes)], lines)}\n\n{origin(chosen)}"


def _small_jobs(records: Sequence[Record]) -> list[Record]:
    """Return the records of many small jobs, without those of one with many pods."""
    return [record for record in records if not controller_results.pods_of(record.measure)[0]]


def elasticdl(records: Sequence[Record]) -> str:
    """Return the records per second of each way to train, and the seconds of what else was measured."""
    found = rows(records)
    measures = (elasticdl_systems.COMPUTING, elasticdl_systems.PACED)
    rates = {(row.measure, row.system): row for row in found if row.measure in measures}
    heading = [f"records/s, {MEDIAN}, n = {_counts(rates.values())}", "all computing", "30 ms for a minibatch"]
    lines = []
    for system in elasticdl_systems.SYSTEMS:
        cells = [rates.get((measure, system.name)) for measure in measures]
        if any(cells):
            lines.append([system.name, *(cell(row).replace(" records/s", "") for row in cells)])
    seconds = [row for row in found if row.unit == "s"]
    both = [record for record in records if record.measure == elasticdl_systems.BOTH_DONE]
    shared = ratios(both, [system.name for system in elasticdl_systems.SHARING])
    return f"{_grid(heading, lines)}\n\n{_listed([*seconds, *shared])}\n\n{origin(records)}"


def membership(records: Sequence[Record]) -> str:
    """Return how the cost of each change grows with the members, a line for each system."""
    found = _by_name(records)
    sizes = sorted({membership_results.size(record.measure) for record in records})
    systems = list(dict.fromkeys(record.system for record in records))
    lines = []
    for label, name in membership_results.LINES:
        for system in systems:
            each = [found.get((name(size), system)) for size in sizes]
            if any(each):
                lines.append([label, system, *(cell(row) for row in each)])
    heading = [MEDIAN, "", *(f"{size:,} members" for size in sizes)]
    return f"{_grid(heading, lines)}\n\n{origin(records)}"


def _counts(found: Iterable[Row]) -> str:
    counts = sorted({row.n for row in found})
    return " to ".join(str(count) for count in dict.fromkeys([*counts[:1], *counts[-1:]]))


def cell(row: Row | None) -> str:
    """Return the median with the extremes, or what is known of it."""
    if row is None:
        return "not measured"
    cap = results.CAPS.get(row.measure)
    if cap is not None and row.median >= cap:
        return f"more than {cap:.0f} s"
    unit = _UNITS.get(row.unit, f" {row.unit}")
    number = _exact if row.unit == "ratio" else _number
    if row.low == row.high:
        return f"{number(row.median)}{unit}"
    return f"{number(row.median)}{unit} ({number(row.low)} to {number(row.high)})"


TABLES = (
    Table("headline", "README.md", "elastic*.jsonl", headline),
    Table("failures", "docs/training/promises.md", "elastic*.jsonl", failures),
    Table("failures-large", "docs/training/promises.md", "elastic*.jsonl", failures_large),
    Table("others", "docs/benchmarks.md", "elastic*.jsonl", others),
    Table("gpu", "docs/benchmarks.md", "gpu-*.jsonl", listed),
    Table("nodes", "docs/benchmarks.md", "nodes*.jsonl", listed),
    Table("membership", "docs/benchmarks.md", "membership*.jsonl", membership),
    Table("elasticdl", "docs/benchmarks.md", "parameter-servers*.jsonl", elasticdl),
    Table("controllers", "docs/benchmarks.md", "controller*.jsonl", controllers),
    Table("controllers-growth", "docs/benchmarks.md", "controller*.jsonl", growth),
    Table("controllers-calls", "docs/benchmarks.md", "controller*.jsonl", calls),
    Table("controllers-large", "docs/benchmarks.md", "controller*.jsonl", large_job),
)


def recorded() -> str:
    """Return the summary of the recorded run, as the command prints it."""
    return f"```\n{report.table(report.read([RECORDED])).rstrip()}\n```"


def place(document: str, name: str, text: str) -> str:
    """Return the document with `text` between the marks of the table `name`.

    Raises:
        ValueError: The document doesn't have the marks.
    """
    begin, end = f"<!-- rows: {name} -->\n", "<!-- end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f"no '{begin.strip()}' with a following '{end}' in the document: put both where it belongs")
    return pattern.sub(lambda _: f"{begin}{text}\n{end}", document, count=1)


def rendered() -> dict[Path, str]:
    """Return the documents with the tables of all existing records."""
    texts: dict[Path, str] = {}
    pieces = [(table.name, table.document, table.text()) for table in TABLES]
    for name, document, text in [*pieces, ("recorded", "docs/training/watch.md", recorded())]:
        path = ROOT / document
        before = texts.get(path) or path.read_text()
        texts[path] = before if text is None else place(before, name, text)
    return texts


def _by_name(records: Sequence[Record]) -> dict[tuple[str, str], Row]:
    return {(row.measure, row.system): row for row in rows(records)}


def _listed(found: Sequence[Row]) -> str:
    lines = [[row.measure, row.system, str(row.n), cell(row)] for row in found]
    return _grid(["measure", "system", "n", MEDIAN], lines)


def _grid(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (heading, ["---"] * len(heading), *lines))


def _exact(value: float) -> str:
    """Return three decimals, for what is about 1."""
    return f"{value:.3f}"


def _number(value: float) -> str:
    """Return two or three significant digits, or all digits before the point."""
    if value == 0:
        return "0"
    if abs(value) < 0.1:
        return f"{value:.3f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def main(argv: Sequence[str]) -> int:
    """Print the tables or write them into the documents."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="into the documents")
    if parser.parse_args(argv).write:
        for path, text in rendered().items():
            path.write_text(text)
        return 0
    for table in TABLES:
        print(f"{table.name}:\n\n{table.text() or 'no records'}\n")
    print(f"recorded:\n\n{recorded()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
