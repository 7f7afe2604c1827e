"""Knows which sample each process reads, and ends a read that blocks: a file system hangs, or an answer was lost.

    readings = Readings(processes=4)                # before the processes are forked
    readings.settle(1)                              # in the first of them; the training process is number 0
    with readings.of(17, DATASET): dataset[17]
    with readings.of(0, PROCESSES): next(answers)   # the training process waits for the others

    watch = Watch(readings, log, limit_seconds=300)
    watch.start()

A thread of the training process looks at all of them. It logs what is late, and after the limit it sends a signal to
the process that reads: there the read fails with DataStuck. The training process gives up its read or wait also when
the worker must leave. A system call that no signal interrupts, and a library that repeats it, ignore that; a process
that prepares data is then killed when the loader is closed, and the training process ends at once. Time in which the
process was frozen doesn't count.
"""

from __future__ import annotations

import mmap
import os
import platform
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Self

from tidewater.contract import exit_codes
from tidewater.elastic.errors import DataStuck, GroupBroken
from tidewater.elastic.observe.log import Lasting, Log

DATASET, HELD_OUT, PROCESSES = range(3)
NAMES = ("dataset", "validation data", "processes that prepare data")
SIGNAL = signal.SIGURG
"""The kernel ignores it unless a program handles it, and hardly any program does."""
_SIZE, _WORDS = 1024, 9
_PID, _COUNT, _BUSY, _SAMPLE, _KIND, _DOOMED, _DOOMED_SAMPLE, _LEAVES, _LENGTH = range(_WORDS)
_TEXT = 8 * _WORDS
_LOOK_SECONDS = 1.0
_MOST_SECONDS = 2 * _LOOK_SECONDS
"""What counts of the time between two looks. If more has passed, the process was frozen (SIGSTOP, a frozen cgroup or
virtual machine), and so were the reads."""
_LATE_SECONDS = 10.0
_REACT_SECONDS = 5.0
"""Time for a process to hand on that its read was ended, and for the training process to end."""

_BY_DESCRIPTOR = {
    "x86_64": (0, 5, 8, 17, 19, 45, 72, 73, 217, 295),
    "aarch64": (25, 32, 61, 62, 63, 65, 67, 69, 80, 207),
}
"""System calls with a descriptor as their first argument: read, pread64, readv, lseek, fstat, flock, fcntl, …
The numbers: https://github.com/torvalds/linux/blob/master/arch/x86/entry/syscalls/syscall_64.tbl and
https://github.com/torvalds/linux/blob/master/include/uapi/asm-generic/unistd.h"""
_BY_PATH = {
    "x86_64": {2: 0, 4: 0, 6: 0, 21: 0, 89: 0, 257: 1, 262: 1, 332: 1, 439: 1},
    "aarch64": {48: 1, 56: 1, 78: 1, 79: 1, 291: 1, 439: 1},
}
"""Those with a path, and which argument it is: open, stat, lstat, access, readlink, openat, newfstatat, statx, …"""


@dataclass(frozen=True)
class Reading:
    """What one process does now."""

    pid: int
    count: int
    """Number of contexts and kinds of reads that it has begun."""
    busy: bool
    sample: int
    kind: int

    @property
    def read(self) -> tuple[int, int]:
        """Which of its reads this is."""
        return self.count, self.sample

    @property
    def what(self) -> str:
        """Return it in words."""
        return NAMES[self.kind] if self.kind == PROCESSES else f"sample {self.sample} of the {NAMES[self.kind]}"


class Readings:
    """What the training process and the processes that prepare data for it read, in memory that they share."""

    def __init__(self, processes: int = 0) -> None:
        self._memory = mmap.mmap(-1, _SIZE * (1 + processes))
        self._numbers = memoryview(self._memory).cast("Q")
        self._slots = [slot * _SIZE // 8 for slot in range(1 + processes)]
        self.settle(0)

    def settle(self, number: int) -> None:
        """Make this process the one of that number."""
        self._first = self._slots[number]
        self._numbers[self._first + _PID] = os.getpid()
        place = self._first + _SAMPLE
        self.sample = self._numbers[place : place + 1]
        """In a context, where this process notes each further sample of the same kind that it reads."""

    def handle(self) -> None:
        """Let the signal end a read of this process that was given up. Only the main thread can do that."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(SIGNAL, self._end)

    def of(self, sample: int, kind: int) -> Self:
        """Note that this process reads a sample now, or another wait of that kind, and return its context.

        It can't be nested: in a context, this is read instead of what was read until now.
        """
        numbers, first = self._numbers, self._first
        numbers[first + _SAMPLE], numbers[first + _KIND] = sample, kind
        numbers[first + _COUNT] += 1
        numbers[first + _BUSY] = 1
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._numbers[self._first + _BUSY] = 0

    def now(self) -> list[Reading]:
        """Return what each process does, the training process first."""
        words = [self._numbers[first : first + _WORDS].tolist() for first in self._slots]
        return [
            Reading(each[_PID], each[_COUNT], bool(each[_BUSY]), each[_SAMPLE], each[_KIND])
            for each in words
            if each[_PID]
        ]

    def doom(self, number: int, reading: Reading, text: str, *, leaves: bool) -> None:
        """End that read if it still lasts, with an error that says the text."""
        first, data = self._slots[number], text.encode()[: _SIZE - _TEXT]
        self._memory[first * 8 + _TEXT : first * 8 + _TEXT + len(data)] = data
        self._numbers[first + _LENGTH], self._numbers[first + _LEAVES] = len(data), leaves
        self._numbers[first + _DOOMED_SAMPLE], self._numbers[first + _DOOMED] = reading.sample, reading.count
        if number:
            os.kill(reading.pid, SIGNAL)
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)

    def _end(self, number: int, frame: FrameType | None) -> None:
        words = self._numbers[self._first : self._first + _WORDS].tolist()
        doomed = words[_DOOMED], words[_DOOMED_SAMPLE]
        if words[_BUSY] and doomed == (words[_COUNT], words[_SAMPLE]):
            start = self._first * 8 + _TEXT
            text = self._memory[start : start + words[_LENGTH]].decode(errors="replace")
            raise GroupBroken(text) if words[_LEAVES] else DataStuck(text)


class Watch:
    """Looks at the readings from a thread of the training process. Start it when all processes are forked."""

    def __init__(self, readings: Readings, log: Log, limit_seconds: float) -> None:
        """Watch without an end if ``limit_seconds`` is 0."""
        self._readings, self._limit = readings, limit_seconds
        self._looked = self._clock = 0.0
        """The time of the last look, and the seconds that count until then."""
        self._since: dict[int, tuple[tuple[int, int], float]] = {}
        self._late: dict[int, Lasting] = {}
        self._doomed = (0, 0), 0.0
        """The read of this process that is to end, and since when."""
        self._stopped = threading.Event()
        self._must_leave: Callable[[], bool] = lambda: False
        self._log = log

    def serve(self, log: Log, must_leave: Callable[[], bool]) -> None:
        """Log there, and end a wait of the training process also when this worker must leave."""
        self._log, self._must_leave = log, must_leave
        self._late = {}

    def start(self) -> None:
        """Start to watch. Call it in the main thread, which reads."""
        self._readings.handle()
        threading.Thread(target=self._run, name="data-watch", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def look(self, now: float) -> None:
        """Log what is late at that monotonic time, and end what has reached its limit."""
        self._clock += min(now - self._looked, _MOST_SECONDS)
        self._looked, now = now, self._clock
        seen = self._readings.now()
        for number, reading in enumerate(seen):
            if number not in self._since or self._since[number][0] != reading.read:
                self._since[number] = reading.read, now
        main, busy = seen[0], [number for number, reading in enumerate(seen) if number and reading.busy]
        for number in busy:
            seconds = now - self._since[number][1]
            self._say(number, seen[number], seconds)
            if 0 < self._limit <= seconds:
                self._end(number, seen[number])
        if main.busy:
            waits = main.kind == PROCESSES
            since = max(at for _, at in self._since.values()) if waits else self._since[0][1]
            if not busy:
                self._say(0, main, now - since)
            leaves = self._must_leave() and now - since >= _LOOK_SECONDS
            if leaves or 0 < self._limit <= now - since - _REACT_SECONDS * waits:
                self._end_here(main, seen[busy[0]] if waits and busy else main, now, leaves=leaves)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            self.look(time.monotonic())

    def _say(self, number: int, reading: Reading, seconds: float) -> None:
        if seconds >= _LATE_SECONDS:
            sample = None if reading.kind == PROCESSES else reading.sample
            self._late.setdefault(number, Lasting(self._log, "data_late")).say(
                data=NAMES[reading.kind], sample=sample, file=waits_for(reading.pid), seconds=seconds, pid=reading.pid
            )

    def _end(self, number: int, reading: Reading) -> None:
        self._readings.doom(number, reading, self._sentence(reading), leaves=False)

    def _end_here(self, main: Reading, cause: Reading, now: float, *, leaves: bool) -> None:
        """End the read or wait of this process, or the process if that has no effect."""
        text = f"this worker must leave, and waits for {cause.what}" if leaves else self._sentence(cause)
        if self._doomed[0] != main.read:
            self._doomed = main.read, now
        if now - self._doomed[1] > 2 * _REACT_SECONDS:
            self._log.event("data_stuck", reason=f"{text}. The read can't be interrupted: this worker ends at once")
            os._exit(exit_codes.FAILED)
        self._readings.doom(0, main, text, leaves=leaves)

    def _sentence(self, reading: Reading) -> str:
        given_up = f"in {self._limit:g} s (--data-timeout-seconds)"
        if reading.kind == PROCESSES:
            return (
                f"the {NAMES[PROCESSES]} have sent no batch {given_up}, and none of them reads a sample: one was lost "
                "on the way; their tracebacks above say why, such as too many open files (ulimit -n)"
            )
        file = waits_for(reading.pid)
        return f"{reading.what} was not read {given_up}" + (f": its process waits for {file}" if file else "")


def waits_for(pid: int) -> str | None:
    """Return the file that the main thread of a process waits for in the kernel; None if it isn't known.

    Raises nothing: the process may have ended, and the kernel may not permit it.
    """
    machine = platform.machine()
    try:
        with open(f"/proc/{pid}/syscall") as file:
            number, *arguments = file.read().split()
        if int(number) in _BY_DESCRIPTOR.get(machine, ()):
            return os.readlink(f"/proc/{pid}/fd/{int(arguments[0], 16)}")
        place = _BY_PATH.get(machine, {}).get(int(number))
        return None if place is None else _text_at(pid, int(arguments[place], 16))
    except (OSError, ValueError, IndexError):
        return None


def _text_at(pid: int, address: int) -> str:
    """Return the text in the memory of a process that begins there and ends with a zero byte."""
    page, found = mmap.PAGESIZE, b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while b"\0" not in found and len(found) < page:
            memory.seek(address + len(found))
            found += memory.read(page - (address + len(found)) % page)
    return os.fsdecode(found.split(b"\0")[0])
