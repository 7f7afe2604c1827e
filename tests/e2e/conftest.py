"""One cloud for the whole end-to-end run, because starting it is slow. The first test starts it."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.e2e.checkout import Checkout

FIRST_FAILURE = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Yield a new copy of the checkout; always stop its cloud at the end."""
    copy = Checkout.copy_to(tmp_path_factory.mktemp("e2e") / "tidewater")
    try:
        yield copy
    finally:
        copy.run("python -m localcloud stop", expect=None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the first failure in a module whose tests depend on one another."""
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
