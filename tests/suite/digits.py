"""The fixture `digits`: a conftest that imports it gives it to the tests of its folder."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tidewater.elastic.data.dataset import Source, prepare
from tidewater.elastic.observe.log import Log


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as image files."""
    out = tmp_path_factory.mktemp("data") / "digits"
    prepare(Source(name="digits"), out, Log("test", stream=io.StringIO()))
    return out
