"""Errors of this machine: neither the data nor the script is at fault, and another worker need not get them."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import torch

from tidewater.elastic.errors import DeviceFailed

_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)
_TEXTS = ("DefaultCPUAllocator: can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDA error: out of memory")
"""Of torch's errors that have no type of their own: c10/core/impl/alloc_cpu.cpp, aten/src/ATen/cuda/Exceptions.h. The
last one is an ``AcceleratorError``, for memory that torch's allocator does not manage, such as NCCL's."""

_PASSING = (
    "no kernel image",
    "invalid configuration argument",
    "invalid argument",
    "invalid device ordinal",
    "operation not supported",
)
"""Of CUDA's errors after which a process can go on: they refuse one call, as for a wrong argument.
https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"""


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether the error says that torch could not allocate memory."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in _TEXTS)


def device_failure(error: BaseException) -> str:
    """Return what the error, or one that led to it, says about a GPU that this process can't use any more; or "".

    CUDA repeats such an error in every later call of the process, so only another process can go on. It is a
    RuntimeError, as are torch's errors for a lost peer.
    """
    for each in chain(error):
        text = str(each)
        passes = ran_out_of_memory(each) or any(part in text for part in _PASSING)
        if isinstance(each, DeviceFailed | torch.AcceleratorError) and not passes:
            return next(iter(text.splitlines()), type(each).__name__)
    return ""


def is_of_the_machine(error: BaseException) -> bool:
    """Return whether the error, or one that led to it, is of the machine: memory, open files, space or the GPU."""
    return any(
        isinstance(each, MemoryError | DeviceFailed | torch.AcceleratorError)
        or (isinstance(each, OSError) and each.errno in _ERRNOS)
        or ran_out_of_memory(each)
        for each in chain(error)
    )


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and those that led to it: its causes, and those that were being handled."""
    seen, left = set[int](), [error]
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            left += filter(None, (each.__cause__, each.__context__))
