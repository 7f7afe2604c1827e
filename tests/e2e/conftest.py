"""One cloud for each folder of end-to-end tests, because starting it is slow: its first module starts it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.checkout import Checkout

FIRST_FAILURE = pytest.StashKey[str]()


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
    """Record the first failure in a module if its tests depend on one another."""
    report = yield
    if item.get_closest_marker("incremental") and item.parent and report.failed:
        item.parent.stash.setdefault(FIRST_FAILURE, item.name)
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test at once if a test that it depends on has failed, since its own result would be meaningless."""
    if item.get_closest_marker("incremental") and item.parent:
        first = item.parent.stash.get(FIRST_FAILURE, None)
        if first:
            pytest.fail(f"not run: it builds on {first}, which failed", pytrace=False)
