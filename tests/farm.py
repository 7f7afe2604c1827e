"""The farm of the tests: its zygote is a module of this repository.

with Farm("tests.elastic.schedules.zygote", folder) as farm:
    pid = farm.fork({"id": "a", "log": "/tmp/a.log", …})
    code = farm.wait("a", seconds=10)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.elastic.workers import CHECKOUT
from tidewater.elastic.launch import farm


class Farm(farm.Farm):
    """A zygote and its forked processes. It is a context manager; the processes end with it."""

    def __init__(self, module: str, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(module, folder, {**os.environ, **(environment or {})}, cwd=CHECKOUT)
