"""The quick tests come first, so that a mistake shows in seconds. End-to-end tests run in two processes, by module."""

from __future__ import annotations

import io
from pathlib import Path

import hypothesis
import pytest

from trainer.data.dataset import Source, prepare
from trainer.observe.log import Log

# Hypothesis also fails a test that is slow: on a busy machine every test is.
hypothesis.settings.register_profile(
    "new examples", deadline=None, derandomize=False, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
# The same examples in each run: `make test` tells what a change breaks. `make soak` looks for new examples.
hypothesis.settings.register_profile(
    "any machine", parent=hypothesis.settings.get_profile("new examples"), derandomize=True
)
hypothesis.settings.load_profile("any machine")


STACK = Path(__file__).parent / "e2e"
"""The modules directly in it are about one stack on one cloud, in the order of their names."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests, and say which must run in the same process.

    With two processes (``--dist loadgroup``) the modules of end-to-end tests are dealt out in this order. What takes
    long comes first, or one process would be left alone with it at the end.
    """
    items.sort(key=lambda item: (item.get_closest_marker("e2e") is not None, STACK not in item.path.parents))
    for item in items:
        if item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.xdist_group("stack" if item.path.parent == STACK else str(item.path)))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as image files."""
    out = tmp_path_factory.mktemp("data") / "digits"
    prepare(Source(name="digits"), out, Log("test", stream=io.StringIO()))
    return out
