"""The environment in which torch's NCCL lets a process survive the death of a peer.

By default torch's NCCL prefers a dead job to a hanging one: threads of its own end the process after a remote error.
Here the group's own deadlines and interruptions prevent hanging. torch reads these variables when a group is made,
and TORCH_DISTRIBUTED_DEBUG when it is imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from tidewater.elastic.errors import ConfigError


class _Setting(NamedTuple):
    value: str
    allowed: tuple[str, ...]
    """Values that the user may set; none: any value."""
    why: str
    """What another value does to this process."""


_SETTINGS = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": _Setting(
        "0", ("0", "2"), "after a remote error the watchdog thread ends the process (1 and 3, torch's default)"
    ),
    "TORCH_NCCL_BLOCKING_WAIT": _Setting("0", ("0",), "a wait for a lost peer can't be interrupted"),
    "TORCH_NCCL_DESYNC_DEBUG": _Setting("0", ("0",), "it sets TORCH_NCCL_ASYNC_ERROR_HANDLING to 3"),
    "TORCH_NCCL_ENABLE_MONITORING": _Setting(
        "0", ("0",), "the process ends when an abort takes long, or when another rank dumps its traces"
    ),
    "TORCH_NCCL_DUMP_ON_TIMEOUT": _Setting(
        "0", ("0", "1"), "threads ask the store of rank 0 for a signal to dump, also when rank 0 is gone"
    ),
    "TORCH_NCCL_TEARDOWN_ON_TIMEOUT": _Setting("0", ("0",), "after a time-out the process ends"),
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": _Setting(
        "0",
        ("0",),
        "after an error the watchdog keeps a lock, without which no sum begins, for four times as long",
    ),
    # A process that forms groups again and again hangs in NVLink SHARP's setup: NVIDIA/nccl#1788, #2077, #2117.
    "NCCL_NVLS_ENABLE": _Setting("0", (), ""),
}
_DEBUG = "TORCH_DISTRIBUTED_DEBUG"


def needed(environment: Mapping[str, str], connect_seconds: float) -> dict[str, str]:
    """Return the variables to set. Raise ConfigError if one has a value with which this process would not survive.

    Other values that the user has set are kept. ``connect_seconds`` is the longest wait for a communicator.
    """
    if environment.get(_DEBUG, "").upper() == "DETAIL":
        raise ConfigError(
            f"{_DEBUG}={environment[_DEBUG]} would end this worker when another one is lost (it sets "
            "TORCH_NCCL_ASYNC_ERROR_HANDLING to 3): unset it, or set it to INFO"
        )
    for name, setting in _SETTINGS.items():
        if setting.allowed and environment.get(name, setting.value) not in setting.allowed:
            raise ConfigError(
                f"{name}={environment[name]} would end or block this worker when another one is lost "
                f"({setting.why}): unset it, or set it to {' or '.join(setting.allowed)}"
            )
    values = {name: setting.value for name, setting in _SETTINGS.items()}
    values["TORCH_NCCL_NONBLOCKING_TIMEOUT"] = str(math.ceil(connect_seconds))
    return {name: value for name, value in values.items() if name not in environment}
