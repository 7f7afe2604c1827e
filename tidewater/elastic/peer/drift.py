"""Finds replicas that have drifted apart, and names them.

All workers compute the same updates, so their states are equal bit for bit. A faulty memory or GPU, or a script that
changes parameters by itself, breaks that silently. Every ``--compare-every`` steps each rank sends a checksum of its
state with the gradients of the next step:

    check = digits(checksum(tensors, device), device)        # on every rank; nothing waits for the device
    equal = agree(sums over the ranks of check, size)        # the same answer on all ranks

Sums suffice to see that the checksums are not all equal: the sum of the squares of n numbers is at least the square of
their sum divided by n, and only equal numbers reach it. So what is sent has one size for any number of ranks. Only when
the checksums differ, the ranks give the step up. At the beginning of the next generation they exchange whole checksums
(see ``handover``), and ``judge`` decides by majority. Then they exchange the checksum of each tensor, to name those
that differ.
"""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

POLICIES = ("mend", "stop")
MOST_REPAIRS = 3
"""A worker that differs in so many comparisons one after the other ends: another repair would not last either."""

_DIGIT_BITS = 4
_DIGITS = 64 // _DIGIT_BITS
SENT = 2 * _DIGITS
"""Numbers that each rank sends. float32 is exact below 2^24, and the square of a digit is at most 225: the sums are
exact for up to 74,565 ranks."""
_ODD = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, as in Fibonacci hashing; odd, so that no bit of a product is lost."""
_WORD = 8
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By size in bytes."""


def checksum(tensors: Iterable[Tensor], device: torch.device) -> Tensor:
    """Return a checksum of all bits as an int64 scalar on ``device``.

    The sums are of integers, modulo 2^64: their order doesn't matter, so all machines get the same. A change of a
    single bit always changes the result.
    """
    sums = [words(tensor) for tensor in tensors]
    if not sums:
        return torch.zeros((), dtype=torch.int64, device=device)
    # Some optimizers count their steps in tensors on the CPU. All of these are moved at once.
    elsewhere = [index for index, each in enumerate(sums) if each.device != device]
    if elsewhere:
        moved = torch.stack([sums[index].cpu() for index in elsewhere]).to(device, non_blocking=True)
        for index, each in zip(elsewhere, moved.unbind(), strict=True):
            sums[index] = each
    return combined(sums, device)


def combined(sums: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return one checksum of several ``words``, which are on ``device``. Their order matters."""
    return (torch.stack(list(sums)) * _multipliers(len(sums), device)).sum()


def words(tensor: Tensor) -> Tensor:
    """Return the sum of a tensor's words. Which words depends on its shape and type, never on its strides."""
    flat = tensor.detach().resolve_conj().resolve_neg()
    if flat.is_complex():
        flat = torch.view_as_real(flat)
    flat = flat.contiguous().view(-1)
    size = flat.element_size()
    if flat.numel() * size % _WORD == 0 and flat.storage_offset() * size % _WORD == 0:
        return flat.view(torch.int64).sum()
    if flat.numel() * size % _WORD == 0:
        return flat.clone().view(torch.int64).sum()
    return flat.view(_INTEGERS[size]).sum(dtype=torch.int64)


def digits(check: Tensor, device: torch.device) -> Tensor:
    """Return the digits of a checksum and their squares: SENT numbers in float32."""
    values = ((check >> _shifts(device)) & (2**_DIGIT_BITS - 1)).float()
    return torch.cat([values, values * values])


def agree(sums: Sequence[float], size: int) -> bool:
    """Return whether all of ``size`` ranks have sent the same digits, given the sums of what they sent."""
    return all(round(one) ** 2 == size * round(two) for one, two in zip(sums[:_DIGITS], sums[_DIGITS:], strict=True))


def halves(check: Tensor) -> tuple[int, int]:
    """Return a checksum as two numbers that float64 can represent."""
    return divmod(int(check) % 2**64, 2**32)


def judge(checks: Sequence[Hashable]) -> frozenset[int] | None:
    """Return the indices of the checksums that differ from what the majority has.

    None if no majority shows what is right: no checksum has more than half of the votes, or there is only one vote.
    """
    if len(checks) < 2:
        return None
    ((right, votes),) = Counter(checks).most_common(1)
    if 2 * votes <= len(checks):
        return None
    return frozenset(index for index, check in enumerate(checks) if check != right)


@dataclass(frozen=True)
class Difference:
    """What the comparison of the single tensors has shown, if it was possible."""

    names: tuple[str, ...] = ()
    """The tensors that differ."""
    total: int = 0
    """Number of tensors."""
    buffers: bool = False
    """Whether all of those that differ are buffers."""
    processors: bool = False
    """Whether the workers compute with different kinds of processors."""

    def __str__(self) -> str:
        return f"{len(self.names)} of {self.total} tensors, first {self.names[0]}" if self.names else "not known"

    def cause(self) -> str:
        """Return what to look for. Hardware is the last guess: everything else is more frequent."""
        if self.buffers:
            return f"buffers differ ({self}): change a buffer only in forward passes, or alike in all workers"
        where = f" ({self} differ)" if self.names else ""
        if self.processors:
            return f"the workers have different kinds of processors, which round differently: use one kind{where}"
        return (
            "look for a script that changes the model by a worker's rank, time or host, or draws in before_step or the "
            f"optimizer from a generator of its own; if there is none, for faulty memory or a faulty GPU there{where}"
        )


def verdict(step: int, drifted: Sequence[str], workers: Sequence[str], good: int, difference: Difference) -> str:
    """Return what to tell a person when training stops.

    Args:
        step: The last step that all workers have applied.
        drifted: Names of those that differ from the majority; empty if there is no majority.
        workers: Names of those that were compared.
        good: Step of the newest checkpoint that was written before the states differed; 0 if there is none.
        difference: Between the states.
    """
    if drifted:
        found = f"after step {step} the state of {', '.join(drifted)} differs from that of the other workers"
    elif len(workers) == 1:
        found = (
            f"after step {step} the state of {workers[0]} differed from that of workers that are gone now, and no "
            "majority shows which one is right"
        )
    else:
        found = f"after step {step} the states of {', '.join(workers)} differ, and no majority shows which one is right"
    back = (
        f"the last checkpoint before is that of step {good}: move later ones away and start the workers again"
        if good
        else "there is no checkpoint before: move later ones away and start the workers with --begin-again"
    )
    return f"{found}; {difference.cause()}; {back}"


def processor(device: torch.device) -> int:
    """Return a number of 32 bits for the kind of processor: of GPU, or of CPU and the instructions that torch uses."""
    if device.type == "cuda":
        kind = torch.cuda.get_device_name(device)
    else:
        lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
        model = next((line for line in lines if line.startswith(("model name", "CPU part"))), "")
        kind = f"{model} {torch.backends.cpu.get_cpu_capability()}"
    return zlib.crc32(kind.encode())


@functools.cache
def _multipliers(count: int, device: torch.device) -> Tensor:
    numbers = ((2 * index + 1) * _ODD % 2**64 for index in range(count))
    return torch.tensor([number - 2**64 if number >= 2**63 else number for number in numbers], device=device)


@functools.cache
def _shifts(device: torch.device) -> Tensor:
    return torch.arange(0, 64, _DIGIT_BITS, device=device)
