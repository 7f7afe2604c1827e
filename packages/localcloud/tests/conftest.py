"""Fixtures of all tests of localcloud."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from localcloud import tools

from packages.localcloud.tests.aws.account import OPERATOR, Clients, clients, serve_account


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    """Use the tools that this checkout's set-up made, unless LOCALCLOUD_TOOLS names others."""
    if tools.VARIABLE not in os.environ:
        from scripts import toolchain  # here, so that these tests run without it where the variable is set

        os.environ[tools.VARIABLE] = str(toolchain.localcloud_tools())


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The endpoint of an account; not for the whole session, since other users of moto here reset all accounts."""
    yield from serve_account()


@pytest.fixture(scope="module")
def operator(endpoint: str) -> Clients:
    """The clients of the account's operator."""
    return clients(endpoint, OPERATOR.access_key, OPERATOR.secret_key)
