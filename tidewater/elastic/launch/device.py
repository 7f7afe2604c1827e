"""The device of this process, which computes.

device = own_device(os.environ)     # cuda:0; the CPU on a machine without GPUs
start_device(device)                # its driver answers
failure_of_own_gpu()                # "" as long as it works
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch

from tidewater.elastic.errors import DeviceFailed
from tidewater.elastic.launch.gpus import has_gpu
from tidewater.elastic.machine_errors import device_failure

START_SECONDS = 300.0
"""Longest start of a GPU. Without NVIDIA's persistence daemon it takes half a minute on a machine with eight."""

_T = TypeVar("_T")


def own_device(
    environ: Mapping[str, str], *, nodes: Path = Path("/dev"), seconds: float = START_SECONDS
) -> torch.device:
    """Return the first GPU that this process sees; the CPU if it has none.

    Raise DeviceFailed if there is a GPU and CUDA can't use it: the other workers would wait for a CPU.
    """
    if _within(seconds, torch.cuda.is_available):
        return torch.device("cuda", 0)
    if torch.version.cuda and has_gpu(environ, nodes):
        raise DeviceFailed(
            f"CUDA can't use the GPU of this machine ({_reason(seconds)}). To train on the CPU nevertheless, set "
            "CUDA_VISIBLE_DEVICES to an empty text"
        )
    return torch.device("cpu")


def start_device(device: torch.device, *, seconds: float = START_SECONDS) -> None:
    """Make the CUDA context of this process. Raise DeviceFailed if that takes too long; what torch raises if it fails.

    Call it when the processes that prepare data have been forked: they could not use CUDA afterwards.
    """
    if device.type == "cuda":
        _within(seconds, lambda: torch.zeros(1, device=device))


def failure_of_own_gpu() -> str:
    """Return what CUDA says about a GPU that this process can't use any more; or "".

    Libraries such as cuBLAS, cuDNN and Triton raise errors of their own for an error of the GPU. Asking takes
    microseconds, and waits for nothing that the GPU still does.
    """
    is_initialized: Callable[[], bool] = torch.cuda.is_initialized
    if not is_initialized():
        return ""
    try:
        torch.cuda.current_stream().query()
    except RuntimeError as error:
        return device_failure(error)
    return ""


def _reason(seconds: float) -> str:
    """Return why CUDA can't be used."""
    try:
        _within(seconds, torch.cuda.init)
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0]
    return "it gives no reason"


def _within(seconds: float, call: Callable[[], _T]) -> _T:
    """Return what ``call`` returns. It has a thread of its own: a driver that hangs can't be interrupted."""
    answers: queue.SimpleQueue[_T | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(call())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, name="device", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise DeviceFailed(f"the GPU's driver did not answer within {seconds:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
