"""The modules that took longest in a run of `make test`, as a table for CONTRIBUTING.md.

python -m tests.suite.slowest build/tests*.xml [--number 12]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

NUMBER = 12


def seconds(reports: Iterable[Path]) -> dict[str, float]:
    """Return how long the tests of each module took, with their fixtures, from JUnit's reports."""
    found = defaultdict[str, float](float)
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            found[case.get("classname", "").replace(".", "/") + ".py"] += float(case.get("time", 0))
    return found


def table(found: Mapping[str, float], number: int) -> str:
    """Return the longest modules as lines of Markdown; the last one has the sum of the others."""
    longest = sorted(found.items(), key=lambda each: -each[1])[:number]
    rest = sum(found.values()) - sum(took for _, took in longest)
    rows = [(f"`{name}`", took) for name, took in longest]
    rows.append((f"{len(found) - len(longest):,} others", rest))
    return "".join(["| module | seconds |\n|---|---|\n", *(f"| {name} | {took:,.0f} |\n" for name, took in rows)])


def main() -> None:
    """Print the table of the reports that the command names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", nargs="+", type=Path, help="an XML file that pytest's --junitxml has written")
    parser.add_argument("--number", type=int, default=NUMBER, help="of modules (default: %(default)s)")
    given = parser.parse_args()
    print(table(seconds(given.report), given.number), end="")


if __name__ == "__main__":
    main()
