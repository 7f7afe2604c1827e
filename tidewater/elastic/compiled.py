"""The names in the state of a model with wrappers that torch puts around modules."""

from __future__ import annotations

_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")
"""What ``torch.compile(module)`` and ``checkpoint_wrapper(module)`` put before the names of the module's parameters and
buffers, at any depth: torch/_dynamo/eval_frame.py, torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py."""


def plain(name: str) -> str:
    """Return the name that a parameter or buffer has without these wrappers.

    States are stored under these names, so that a model can be compiled, or store no activations, or not in each run.
    """
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name
