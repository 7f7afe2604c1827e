"""Batches on the device that computes with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def onto(value: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on ``device``. Copies from pinned memory do not block."""
    if device.type == "cpu":
        return value
    if isinstance(value, Mapping):
        return {name: onto(entry, device) for name, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(onto(entry, device) for entry in value))
    if isinstance(value, list | tuple):
        return type(value)(onto(entry, device) for entry in value)
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    return value.to(device) if hasattr(value, "to") else value
