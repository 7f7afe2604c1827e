"""Checksums find every changed bit, sums of their digits show whether all are equal, and a majority decides."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from tidewater.elastic.peer.drift import Difference, agree, checksum, digits, judge, verdict

CPU = torch.device("cpu")
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


def check(*tensors: torch.Tensor) -> int:
    return int(checksum(tensors, CPU))


def sums(checks: Sequence[int]) -> list[float]:
    """Return what the ranks get if each sends one of these checksums."""
    return torch.stack([digits(torch.tensor(each), CPU) for each in checks]).sum(0).tolist()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (4, 6)], ids=str)
def test_a_flipped_bit_changes_the_checksum(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    others = torch.arange(6.0), torch.zeros(())
    before = check(tensor, *others)
    bits = tensor.view(-1).view(torch.uint8)
    for byte in range(len(bits)):
        for bit in range(8):
            bits[byte] ^= 1 << bit
            assert check(tensor, *others) != before
            bits[byte] ^= 1 << bit
    assert check(tensor, *others) == before


def test_exchanged_tensors_change_the_checksum() -> None:
    assert check(torch.zeros(4), torch.ones(4)) != check(torch.ones(4), torch.zeros(4))


def test_the_checksum_of_a_view_that_conjugates_or_negates_is_that_of_its_values() -> None:
    view = torch.tensor([1 + 2j, 3 - 4j]).conj()
    assert check(view) == check(view.resolve_conj())
    assert check(view.imag) == check(torch.tensor([-2.0, 4.0]))


def test_the_checksum_does_not_depend_on_strides() -> None:
    image = torch.randn(2, 4, 3, 5)
    assert check(image) == check(image.to(memory_format=torch.channels_last))
    shifted = torch.cat([torch.zeros(1), image.flatten()])[1:].view(image.shape)
    assert check(image) == check(shifted)


def test_ranks_agree_only_if_all_have_the_same_checksum() -> None:
    chance = random.Random(0)
    for size in (2, 3, 8, 1000):
        same = [chance.randrange(-(2**63), 2**63)] * size
        assert agree(sums(same), size)
        for bit in range(64):
            other = (same[0] % 2**64) ^ (1 << bit)
            one = [*same[1:], other - 2**64 if other >= 2**63 else other]
            assert not agree(sums(one), size), f"{size} ranks, bit {bit}"


def test_the_minority_is_found() -> None:
    assert judge([7, 7, 9]) == frozenset({2})
    assert judge([5, 7, 9, 7, 7]) == frozenset({0, 2})
    assert judge([7, 7]) == frozenset()


@pytest.mark.parametrize("checks", [[7], [7, 9], [7, 7, 9, 9], [1, 2, 3], [7, 7, 1, 2]], ids=str)
def test_without_a_majority_nobody_is_right(checks: list[int]) -> None:
    assert judge(checks) is None


def test_the_verdict_names_workers_and_the_checkpoint_before() -> None:
    assert verdict(300, ["c"], ["a", "b", "c"], 200, Difference()).startswith(
        "after step 300 the state of c differs from that of the other workers"
    )
    said = verdict(300, [], ["a", "b"], 0, Difference())
    assert said.startswith("after step 300 the states of a, b differ, and no majority")
    assert said.endswith("there is no checkpoint before: move later ones away and start the workers with --begin-again")


def test_the_verdict_on_a_worker_whose_peers_are_gone_says_so() -> None:
    assert verdict(300, [], ["a"], 200, Difference()).startswith(
        "after step 300 the state of a differed from that of workers that are gone now, and no majority"
    )
