"""Errors of this machine: neither the data nor the script is at fault, and another worker need not get them."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import torch

_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)
_TEXTS = ("DefaultCPUAllocator: can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Of torch's errors that have no type of their own: c10/core/impl/alloc_cpu.cpp, aten/src/ATen/cuda/Exceptions.h."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether the error says that torch could not allocate memory."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in _TEXTS)


def is_of_the_machine(error: BaseException) -> bool:
    """Return whether the error, or one that led to it, is of the machine: memory, open files, space or the GPU."""
    return any(
        isinstance(each, MemoryError | torch.AcceleratorError)
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
