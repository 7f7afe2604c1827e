"""The tests of TorchX's scheduler run in TorchX's environment: see `make unit`."""

from __future__ import annotations

import importlib.util

# `make unit` runs them first; every other run of pytest is in an environment without TorchX.
collect_ignore = [] if importlib.util.find_spec("torchx") else ["torchx"]
