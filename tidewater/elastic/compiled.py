"""The names in the state of a compiled model."""

from __future__ import annotations

_WRAPPER = "_orig_mod."
"""What ``torch.compile(module)`` puts before the names of the module's parameters and buffers, at any depth."""


def plain(name: str) -> str:
    """Return the name that a parameter or buffer has without ``torch.compile``.

    States are stored under these names, so that a model can be compiled or not in each run.
    """
    return name.replace(_WRAPPER, "")
