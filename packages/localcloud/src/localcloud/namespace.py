"""Puts the daemon into a PID namespace of its own, so that the kernel ends whatever it runs when it ends.

    pid = os.getpid()
    namespace.enter()      # returns in a new process; this one waits for it and exits as it does
    serve(pid)             # SIGKILL of `pid`, or of the process here, leaves nothing running

There are three processes: the one outside, which a person started and may signal; process 1 of the namespace, which
collects orphans; and the caller's own. SIGTERM and SIGINT are passed on from the first to the last.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 1 << 12, 1 << 14, 1 << 18, 1 << 20
PR_SET_PDEATHSIG = 1
NETNS_DIR = Path("/run/netns")
"""Where `ip netns` has the network namespaces that have names."""
PASSED_ON = (signal.SIGTERM, signal.SIGINT)

_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """Return in a process of a new PID namespace, with a /proc of its own; it shares network namespaces with the host.

    The calling process doesn't return: it exits with the status of the new one. It must have one thread only.

    Raises:
        OSError: The kernel refused the namespace or its /proc.
    """
    _share(NETNS_DIR)
    _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWPID), "unshare")
    _become_child()
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    _mount_proc()
    _become_child()


def _share(folder: Path) -> None:
    """Let the host see what is mounted in this folder from now on, also in a new mount namespace.

    `ip netns` does the same before it makes the first network namespace. On a host with private mounts, as without
    systemd, the daemon would do so in its own mount namespace, and the host would see empty files.
    https://github.com/iproute2/iproute2/blob/v6.1.0/ip/ipnetns.c (netns_add)
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, descriptor = os.fsencode(folder), os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # as ip does: two at a time would hide each other's mounts
        if _libc.mount(b"none", path, None, MS_SHARED | MS_REC, None) != 0:
            _check(_libc.mount(path, path, None, MS_BIND | MS_REC, None), f"mount {folder}")
            _check(_libc.mount(b"none", path, None, MS_SHARED | MS_REC, None), f"share {folder}")
    finally:
        os.close(descriptor)


def _mount_proc() -> None:
    _check(_libc.mount(b"none", b"/proc", None, MS_PRIVATE | MS_REC, None), "make /proc private")
    _check(_libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount /proc")


def _become_child() -> None:
    """Fork and return in the child; the parent attends it to its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    watched = {*PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        number = signal.sigwait(watched)
        if number in PASSED_ON:
            os.kill(child, number)
        elif (status := _reap(child)) is not None:
            os._exit(status)


def _reap(child: int) -> int | None:
    """Collect every process that has ended; return the exit status of `child` if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            found = code if code >= 0 else 128 - code


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
