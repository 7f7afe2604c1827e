"""Makes this process's torch like one before 2.14.

It then lacks the private functions that give a process group new peers, and the trainer makes new groups instead.
"""

from __future__ import annotations

import os

from torch.distributed import distributed_c10d

PRIVATE = ("_get_reconfigure_handle", "_reconfigure")
OLD_NCCL = {"TORCH_DIST_USE_NCCL2": "0"}
"""Chooses the older one of torch 2.15's two implementations of NCCL's groups."""


def pretend() -> None:
    """Remove the functions from this process. Before the trainer opens its group, which looks for them."""
    for name in PRIVATE:
        if hasattr(distributed_c10d, name):
            delattr(distributed_c10d, name)
    os.environ.update(OLD_NCCL)
