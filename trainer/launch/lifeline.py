"""Child processes that end with the process that started them, however that ends: SIGKILL and a crash included.

subprocess.Popen(command, preexec_fn=bound_to(os.getpid()))
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def bound_to(parent: int) -> Callable[[], None]:
    """What a child of ``parent`` has to call: from then on Linux kills it when the parent ends.

    Linux sends the signal when the thread ends that started the child: start it from one that lasts.
    """
    prctl = ctypes.CDLL(None).prctl  # looked up before a fork, after which little is safe to do

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended in between
            os._exit(1)

    return bind
