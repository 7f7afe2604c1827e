"""What a step of ResNet-50 in bf16 costs the host: what it launches, and whether it waits for the device.

python -m benchmarks.gpu.cost launches cuda        # kernels; on the CPU, the operators that are called
python -m benchmarks.gpu.cost waits cuda           # fails if the host waits for the device before the sums
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.output import NOT_CHECKED, require, tell
from benchmarks.gpu.resnet import COUNTED_FROM, MEMORY_STEPS, PLAIN, SIZES, TRAINER, plain, train
from tidewater import Report
from tidewater.elastic.session.step import Stepper

MOST_LAUNCHES = 1.2


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, _: Any, given: Any = (), named: Any = None) -> Any:
        """Count one."""
        self.count += 1
        return function(*given, **named or {})


@contextlib.contextmanager
def counted(device: torch.device, found: list[float]) -> Iterator[None]:
    """Add the number of kernels that the block launches to `found`, or that of its operators on the CPU."""
    if device.type == "cpu":
        with Calls() as calls:
            yield
        found.append(calls.count)
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        yield
        torch.cuda.synchronize()
    launches = (event for event in profile.events() or () if "LaunchKernel" in event.name)
    found.append(sum(event.count for event in launches))


def launches(name: str) -> None:
    """Compare what a step launches."""
    size, device = SIZES[name], torch.device(name)
    mine, theirs = list[float](), list[float]()
    counting = contextlib.ExitStack()

    def on_step(report: Report) -> None:
        """Count from the report of one step to that of the next: in between is one step, in two halves."""
        if report.step == COUNTED_FROM:
            counting.enter_context(counted(device, mine))
        elif report.step == COUNTED_FROM + 1:
            counting.close()

    train(size, MEMORY_STEPS, on_step)
    loop = plain(size, device, MEMORY_STEPS, lambda model: model)
    for number, _ in enumerate(loop, start=1):
        if number == COUNTED_FROM:
            with counted(device, theirs):
                next(loop)
    what = "operators" if name == "cpu" else "kernels"
    tell(f"ResNet-50, bf16: {what} of a step", TRAINER, mine, what)
    tell(f"ResNet-50, bf16: {what} of a step", PLAIN, theirs, what)
    found = mine[0] / theirs[0]
    tell(f"ResNet-50, bf16: {what} of a step / plain PyTorch's", TRAINER, [found], "ratio")
    require(found <= MOST_LAUNCHES, f"a step has at most {MOST_LAUNCHES} times as many {what} as plain PyTorch's")


def waits(name: str) -> None:
    """Let torch raise if the host waits for the device between the beginning of a step and its sums."""
    if name == "cpu":
        print("a CPU is no device that the host could wait for")
        raise SystemExit(NOT_CHECKED)
    made = Stepper._accumulate
    steps = 0

    def strict(*given: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps <= COUNTED_FROM:  # the first steps may wait, as for an algorithm that is chosen
            return made(*given)
        cuda: Any = torch.cuda  # not typed
        cuda.set_sync_debug_mode("error")
        try:
            return made(*given)
        finally:
            cuda.set_sync_debug_mode("default")

    replaced: Any = Stepper
    replaced._accumulate = strict
    train(SIZES[name], MEMORY_STEPS, lambda report: None)
    tell(
        "ResNet-50, bf16: steps without a wait for the device before the sums", TRAINER, [steps - COUNTED_FROM], "steps"
    )


PARTS: dict[str, Callable[[str], None]] = {"launches": launches, "waits": waits}


if __name__ == "__main__":
    if sys.argv[2] == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    PARTS[sys.argv[1]](sys.argv[2])
