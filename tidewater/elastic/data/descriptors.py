"""The open files of a process that was forked to prepare data.

separate_files()            # in the forked process, before it reads
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

_STANDARD_STREAMS = (0, 1, 2)


def separate_files() -> None:
    """Close inherited sockets, and give each inherited file that is only read a place of its own.

    Peers notice the death of the training process only if its connections close. A file that was opened before the fork
    has one place in all processes: one that seeks moves it for the others, and they read other bytes than they sought
    (open(2), "open file description"). The descriptor numbers stay in use, because objects copied by the fork refer to
    them.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number in _STANDARD_STREAMS:
            continue
        # The descriptor of the listing is closed by now, and a file that can't be opened again stays as it is.
        with contextlib.suppress(OSError):
            mode = os.fstat(number).st_mode
            if stat.S_ISSOCK(mode):
                os.dup2(null, number, inheritable=False)
            elif stat.S_ISREG(mode) and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                _open_again(number)
    os.close(null)


def _open_again(number: int) -> None:
    """Let the descriptor refer to the same file, at the same place, by another opening of it."""
    place = os.lseek(number, 0, os.SEEK_CUR)
    again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
    try:
        os.lseek(again, place, os.SEEK_SET)
        os.dup2(again, number, inheritable=os.get_inheritable(number))
    finally:
        os.close(again)
