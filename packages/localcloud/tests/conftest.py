"""Fixtures of all tests of localcloud."""

from __future__ import annotations

import os

import pytest
from localcloud import tools


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    """Use the tools that this checkout's set-up made, unless LOCALCLOUD_TOOLS names others."""
    if tools.VARIABLE not in os.environ:
        from scripts import toolchain  # here, so that these tests run without it where the variable is set

        os.environ[tools.VARIABLE] = str(toolchain.localcloud_tools())
