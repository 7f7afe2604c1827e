"""One cloud for each folder of end-to-end tests, because starting it is slow: its first module starts it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.checkout import Checkout, CommandFailedError

FIRST_FAILURE = pytest.StashKey[str]()
LOOK = (
    "kubectl get nodes,pods,elasticjobs -A -o wide; kubectl get nodeclaims -o wide;"
    " kubectl get events -A --sort-by=.lastTimestamp | tail -n 40;"
    " grep -E 'WARNING|ERROR' .localcloud/logs/daemon.log | tail -n 12"
)
"""What shows why a test waited in vain. A few dozen lines: reports of whole runs are often cut."""


class Clouds:
    """The copy of the checkout that has its cloud in use. The cloud of another folder is stopped first."""

    def __init__(self, place: Callable[[str], Path]) -> None:
        self._place = place
        self._current: tuple[Path, Checkout] | None = None

    def of(self, folder: Path) -> Checkout:
        """Return the copy for the tests in a folder directly in this one."""
        if self._current and self._current[0] == folder:
            return self._current[1]
        self.end()
        copy = Checkout.copy_to(self._place(folder.name) / "tidewater")
        self._current = folder, copy
        return copy

    def seen(self) -> str:
        """Return what the cloud in use looks like, or why that can't be seen."""
        try:
            return self._current[1].run(LOOK, expect=None, timeout=60).text if self._current else ""
        except (CommandFailedError, subprocess.CalledProcessError) as error:
            return str(error)

    def end(self) -> None:
        """Stop the cloud in use, whatever is in it."""
        if self._current:
            self._current[1].run("localcloud stop", expect=None)
        self._current = None


@pytest.fixture(scope="session")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    """Yield the clouds of this process. One runs at a time; it is always stopped at the end."""
    made = Clouds(tmp_path_factory.mktemp)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def checkout(request: pytest.FixtureRequest, clouds: Clouds) -> Checkout:
    """Return a copy of the checkout with a cloud of its own, the same one for all modules of a folder."""
    here = Path(__file__).parent
    return clouds.of(here / request.path.relative_to(here).parts[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report what the cloud looks like when a test fails, since it is stopped later; record the first failure in a
    module if its tests depend on one another."""
    report = yield
    clouds: Clouds | None = getattr(item, "funcargs", {}).get("clouds")
    if clouds and report.failed:
        report.sections.append(("the cloud", clouds.seen()))
    if item.get_closest_marker("incremental") and item.parent and report.failed:
        item.parent.stash.setdefault(FIRST_FAILURE, item.name)
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test at once if a test that it depends on has failed, since its own result would be meaningless."""
    if item.get_closest_marker("incremental") and item.parent:
        first = item.parent.stash.get(FIRST_FAILURE, None)
        if first:
            pytest.fail(f"not run: it builds on {first}, which failed", pytrace=False)
