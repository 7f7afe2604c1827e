"""A clock of one module: with a patched ``time`` of all, threads of other tests would spin and make time pass."""

from __future__ import annotations

import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def clock_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch, **instead: Any) -> None:
    """Let the module's ``time`` have these functions in the place of its own ones."""
    monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **instead}))
