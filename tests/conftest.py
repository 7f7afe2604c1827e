"""The quick tests come first, so that a mistake shows in seconds and the end-to-end run comes last."""

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as image files."""
    out = tmp_path_factory.mktemp("data") / "digits"
    prepare(Source(name="digits"), out, Log("test", stream=io.StringIO()))
    return out
