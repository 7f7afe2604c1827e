"""The log that tests can read, and the folder of checkpoints, as in the tests of checkpoints."""

from __future__ import annotations

from tests.elastic.checkpoint.conftest import folder, told

__all__ = ["folder", "told"]
