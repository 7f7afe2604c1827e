"""A seal for numbers that the ranks add up to decide something: it shows whether what arrived is their sum.

    sums = ...                                          # over all ranks, of [*seal(uuid), *values]
    values = opened(sums, uuid, size)                   # raises GroupBroken

After an abort the memory of a sum may contain anything: the values of this rank only, of some ranks, of an earlier
generation. Each rank adds a 1, so the sum of these is the number of ranks, and two numbers made from the generation's
unique number.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tidewater.elastic.errors import GroupBroken

SEAL = 3
"""Number of values in a seal."""
_MODULUS = 4093
"""A prime, so that float32 adds the numbers of up to 4096 ranks exactly (it does up to 2**24). Two numbers of this
range are equal by chance for one in 16 million pairs of generations."""


def seal(uuid: int) -> tuple[float, float, float]:
    """Return the values with which each rank of the generation ``uuid`` begins its part of a sum."""
    return 1.0, 1.0 + uuid % _MODULUS, 1.0 + uuid // _MODULUS % _MODULUS


def opened(sums: Sequence[float], uuid: int, size: int) -> Sequence[float]:
    """Return what follows the seal. Raise GroupBroken if these are not sums of ``size`` ranks of that generation."""
    found, wanted = list(sums[:SEAL]), [size * value for value in seal(uuid)]
    if found != wanted:
        raise GroupBroken(
            f"what arrived is not the sum of {size} ranks of this generation (seal {found}, not {wanted})"
        )
    return sums[SEAL:]


def numbers(values: Sequence[float], device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor of these values.

    On a GPU it comes from pinned memory: from other memory the host waits until all kernels before the copy have ended.
    """
    on_host = torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda")
    return on_host.to(device, non_blocking=True)
