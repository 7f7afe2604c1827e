"""A group counts the failures with a cause in this process, and leaves those of its device to the session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.elastic.alone import form_alone, opened_alone
from tests.elastic.group.faulty import ERRORS
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.group import Group
from tidewater.elastic.machine_errors import device_failure

PLACES = ("connect", "begin", "finish")


@pytest.fixture
def group() -> Iterator[Group]:
    for group in opened_alone():
        form_alone(group)
        yield group


@pytest.fixture
def fail(group: Group, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that lets a method of the backend fail from now on."""

    def fail(error: str, place: str) -> None:
        def raise_(*_: object) -> None:
            raise ERRORS[error]()

        monkeypatch.setattr(group._backend, place, raise_)

    return fail


def use(group: Group) -> None:
    form_alone(group)
    group.confirm()


@pytest.mark.parametrize("place", ["prepare", *PLACES])
def test_an_error_of_the_device_is_raised_as_it_is(group: Group, fail: Any, place: str) -> None:
    fail("device", place)
    with pytest.raises(torch.AcceleratorError):
        use(group)


def test_memory_that_torch_does_not_manage_may_suffice_the_next_time(group: Group, fail: Any) -> None:
    fail("memory", "connect")
    with pytest.raises(GroupBroken, match="out of memory"):
        use(group)


@pytest.mark.parametrize("place", PLACES)
def test_each_generation_that_fails_here_counts_once(group: Group, fail: Any, place: str) -> None:
    fail("local", place)
    for _ in range(2):
        with pytest.raises(GroupBroken, match="ncclSystemError"):
            use(group)
    assert group.own_failures == 2


@pytest.mark.parametrize(("size", "counted"), [(2, 0), (1, 1)])
def test_what_a_peer_may_have_caused_counts_only_where_there_is_none(
    group: Group, fail: Any, size: int, counted: int
) -> None:
    fail("peer", "finish")
    group.size = size
    with pytest.raises(GroupBroken, match="closed by peer"):
        group.confirm()
    assert group.own_failures == counted


def test_a_consequence_of_an_interruption_does_not_count(
    group: Group, fail: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail("local", "finish")
    work = group.begin(torch.ones(1))
    monkeypatch.setattr(group, "check", lambda: group.interrupt("lost b"))
    group.complete([work])
    assert group.own_failures == 0


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("CUDA error: device-side assert triggered", True),
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA error: uncorrectable ECC error encountered", True),
        ("CUDA error: out of memory", False),
        ("CUDA error: no kernel image is available for execution on the device", False),
        ("CUDA error: invalid configuration argument", False),
    ],
)
def test_only_errors_that_a_process_cannot_recover_from_are_those_of_its_device(text: str, *, fails: bool) -> None:
    error = torch.AcceleratorError(f"{text}\nCompile with TORCH_USE_CUDA_DSA to enable device-side assertions.")
    assert device_failure(error) == (text if fails else "")
