"""Child processes that end when their parent ends, even after SIGKILL or a crash.

subprocess.Popen(command, preexec_fn=bound_to(os.getpid()))
reap_strangers({process.pid})       # in process 1 of a container
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_INIT = 1


def bound_to(parent: int) -> Callable[[], None]:
    """Return a function for a child of ``parent`` to call: from then on Linux kills it when the parent ends.

    Linux sends the signal when the thread that started the child ends, so start the child from a long-lived thread.
    """
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork, because few calls are safe after it

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has already ended
            os._exit(1)

    return bind


def reap_strangers(ours: set[int]) -> None:
    """Reap orphans: process 1 inherits those of its container, and they stay zombies until it waits for them."""
    while os.getpid() == _INIT:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ours:  # one of our own processes has just ended: `poll` must see it first
            return
        os.waitpid(ended.si_pid, 0)
