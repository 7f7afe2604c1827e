"""The tests of TorchX's scheduler run in TorchX's environment: see `make test-torchx`."""

from __future__ import annotations

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torchx") else ["torchx"]
