"""Fixtures of the controller's tests."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator

import pytest

from tests.controller.fakes import virtual


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in virtual time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    virtual.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def same_jitter() -> Iterator[None]:
    """Let back-offs and polls have the same jitter in each run, so that in virtual time each run is the same."""
    before = random.getstate()
    random.seed(0)
    yield
    random.setstate(before)
