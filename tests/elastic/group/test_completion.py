"""A collective is complete when its result has reached the host; whatever happens before breaks the group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import ErrorType

from tests.elastic.alone import form_alone, opened_alone
from tests.elastic.group.nccl.double import Communicator, Device, Double
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import DeviceFailed, GroupBroken
from tidewater.elastic.group import nccl
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.nccl_environment import needed

CPU = torch.device("cpu")
SOON = 0.05
NEVER = 1e6
FIRST = 1
"""The sum with which a group connects."""


@pytest.fixture
def double() -> Double:
    return Double(CPU, timeout_seconds=NEVER)


@pytest.fixture
def group(double: Double) -> Iterator[Group]:
    for group in opened_alone(lambda *_: Group(double)):
        form_alone(group)
        yield group
        double.stream.release()


@pytest.fixture
def stream(double: Double, group: Group) -> Device:
    return double.stream


@pytest.fixture
def communicator(double: Double, group: Group) -> Communicator:
    return double.communicator


def soon(action: Callable[[], None]) -> None:
    """Let another thread do this while the test's thread waits."""
    threading.Timer(SOON, action).start()


def test_a_sum_is_complete_when_its_result_has_arrived(group: Group, stream: Device) -> None:
    stream.hold()
    soon(stream.release)
    tensor = torch.ones(3)
    group.complete([group.begin(tensor), group.begin(tensor)])
    assert stream.arrived == FIRST + 2


def test_the_wait_for_the_others_begins_when_this_rank_has_done_its_part(
    group: Group, stream: Device, double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    class Busy:
        """An event that the device has not reached, and that it reaches when the sum is complete."""

        def query(self) -> bool:
            return stream.arrived > FIRST

        def elapsed_time(self, end: object) -> float:
            return 250.0

    marks: list[Any] = [Busy()]
    real = double._mark
    monkeypatch.setattr(double, "_mark", lambda: marks.pop(0) if marks else real())
    stream.hold()

    def look() -> None:
        seen.append(group.waits())
        stream.release()

    soon(look)
    group.all_reduce(torch.ones(3))
    assert seen == [False]
    assert group.waited_seconds == 0.25
    stream.hold()
    soon(look)
    group.all_reduce(torch.ones(3))
    assert seen == [False, True]
    assert group.waited_seconds > 0.25
    assert not group.waits()


def test_a_rank_with_a_failed_device_waits_for_no_other(group: Group, double: Double) -> None:
    """Other threads ask, and must not end by the error that the group's own thread raises."""

    class Failed:
        def query(self) -> bool:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    double._own_part = Failed()
    assert not group.waits()


def test_confirm_returns_when_the_others_have_answered(group: Group, stream: Device) -> None:
    stream.hold()
    soon(stream.release)
    group.confirm()
    assert stream.arrived == FIRST + 1


def test_the_time_out_ends_the_wait_for_a_result(group: Group, stream: Device) -> None:
    stream.hold()
    with pytest.raises(GroupBroken, match=r"no answer from a peer within 0.05 s"):
        group.all_reduce(torch.ones(3), timeout_seconds=SOON)


def test_a_time_out_of_its_own_lets_a_sum_last_longer_than_that_of_the_group() -> None:
    double = Double(CPU, timeout_seconds=SOON)
    for group in opened_alone(lambda *_: Group(double)):
        form_alone(group)
        double.stream.hold()
        threading.Timer(5 * SOON, double.stream.release).start()
        group.confirm(timeout_seconds=NEVER)


def test_an_error_that_the_watchdog_sees_first_does_not_delay_the_next_group(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in needed({}, NEVER).items():
        monkeypatch.setenv(name, value)
    double.group_seconds = SOON
    for group in opened_alone(lambda *_: Group(double)):
        form_alone(group)
        double.stream.hold()
        with pytest.raises(GroupBroken, match="NCCL reports TIMEOUT"):
            group.confirm()
        double.stream.release()
        form_alone(group)
        assert double.stream.held_seconds == 0


def test_an_error_of_the_device_is_raised_by_every_call_after_it(group: Group, stream: Device) -> None:
    stream.fail()
    for _ in range(2):
        with pytest.raises(torch.AcceleratorError):
            group.confirm()
        with pytest.raises(torch.AcceleratorError):
            form_alone(group)


def test_an_interruption_ends_the_wait_for_a_result(group: Group, stream: Device) -> None:
    stream.hold()
    soon(lambda: group.interrupt("lost b"))
    with pytest.raises(GroupBroken, match="lost b"):
        group.all_reduce(torch.ones(3))


def test_an_error_that_only_the_watchdog_sees_ends_the_wait(
    group: Group, stream: Device, communicator: Communicator
) -> None:
    def see() -> None:
        communicator.state = ErrorType.REMOTE_ERROR

    stream.hold()
    soon(see)
    with pytest.raises(GroupBroken, match="NCCL reports REMOTE_ERROR"):
        group.all_reduce(torch.ones(3))


def test_a_result_that_arrives_with_an_error_is_not_used(group: Group, communicator: Communicator) -> None:
    communicator.state = ErrorType.COMM_ERROR
    with pytest.raises(GroupBroken, match="NCCL reports COMM_ERROR"):
        group.confirm()


def test_what_an_abort_leaves_is_not_used(group: Group, stream: Device) -> None:
    stream.hold()
    work = group.begin(torch.ones(3))
    group.interrupt("lost b")
    with pytest.raises(GroupBroken, match="lost b"):
        group.complete([work])


def test_after_an_abort_the_group_is_formed_again(group: Group, stream: Device) -> None:
    stream.hold()
    group.begin(torch.ones(3))
    group.interrupt("lost b")
    stream.release()
    form_alone(group)
    assert group.tally([7.0]) == [7.0]


def test_an_interruption_while_a_group_is_formed_aborts_nothing(group: Group, communicator: Communicator) -> None:
    def interrupt() -> bool:
        group.interrupt("lost b")
        assert communicator.allreduce(torch.ones(1))
        return True

    with pytest.raises(GroupBroken):
        group.form(1, 0, (Address("127.0.0.1", 0),), time.monotonic() + 20, superseded=interrupt)


def test_a_process_whose_abort_hangs_ends(
    group: Group, communicator: Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(nccl, "_ABORT_SECONDS", SOON)
        patch.setattr(communicator, "abort", hanging.wait)
        group.interrupt("lost b")
        with pytest.raises(DeviceFailed, match=r"abort did not return within 0\.05 s"):
            form_alone(group)
    hanging.set()


def test_a_gpu_that_does_not_run_a_small_kernel_in_time_is_not_used_again(
    group: Group, double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(double, "_small_kernel", lambda: SimpleNamespace(query=lambda: False))
    monkeypatch.setattr(double, "timeout_seconds", SOON)
    with pytest.raises(DeviceFailed, match=r"did not run a small kernel within 0\.05 s"):
        form_alone(group)
