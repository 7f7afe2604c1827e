"""NCCL: sums on GPUs.

A work of NCCL is "done" when it has been enqueued: ``wait`` only makes the device's stream wait, and callbacks run at
once. So an event is recorded on the stream after it, and the host polls the event. An aborted collective ends too, with
garbage in its tensors; therefore the group's error state is asked after the event and before anything is decided.

Two implementations of "nccl" in torch, two ways to form a group again:

* The newer one, with TORCH_DIST_USE_NCCL2=1, and torch 2.15's default: a group made with ``enable_reconfigure`` is only
  *revoked* by ``abort``: the error state is set and the collectives end, but the communicator remains. ``_reconfigure``
  accepts it in that state, aborts it, and starts anew. Only a group that was shut down "has been finalized" and is
  refused.
* The older one, torch 2.14's default: ``abort`` ends the communicator for ever, and a new group is made.

No group is shut down: after an error that raises, and a healthy communicator would wait for peers that may be gone.

Connecting blocks, and without end if a peer dies meanwhile: NCCL's bootstrap has no time-out. So it is tried in a
thread (see ``attempts``), with communicators that don't block, and given up at the generation's deadline. Then torch
still waits in that thread: the older implementation for TORCH_NCCL_NONBLOCKING_TIMEOUT, with a lock that ``abort``
needs, too; the newer one for the time-out of ``_reconfigure``. So what was being connected is never used again: the
next generation makes a new group at once, and the thread aborts the old one at last.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tidewater.elastic.errors import DeviceFailed
from tidewater.elastic.group import backend
from tidewater.elastic.group.attempts import Attempts
from tidewater.elastic.group.backend import Backend
from tidewater.elastic.group.rendezvous import MeetingStore, SwitchedStore, exchange
from tidewater.elastic.peer.keyvalue import LocalKeys

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 20e-6, 1e-3
"""Between two looks at an event: at first about what one look takes, at last far less than a heartbeat."""
_ABORT_SECONDS = 20.0
"""NCCL's abort takes less than a second, unless it hangs."""
_CLOSE_SECONDS = 5.0
"""Longest wait for an abort when the process ends anyway."""
_FOREVER_SECONDS = 7 * 24 * 3600.0
"""Time-out that torch gets. ``finish`` has deadlines of its own: the older implementation ignores that of a sum, and
after a time-out of the group the error state stays."""
_MOST_ABANDONED = 4
"""Attempts to connect that have not returned, with which this process goes on. Each keeps a thread and some memory."""


class Nccl(Backend):
    """What both ways to form the group have in common."""

    name = "nccl"

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        super().__init__(device, timeout_seconds)
        self._connected = False
        """Whether there is a communicator that ``abort`` may end. torch doesn't lock it against ``_reconfigure``."""
        self._aborting: threading.Thread | None = None
        self._attempts = Attempts(discard=_abort)
        self._probe: tuple[Any, torch.Tensor] | None = None
        self.group_seconds = _FOREVER_SECONDS
        self._own_part: Any = None
        """The event after this process's part of the sums that ``finish`` waits for; None if it doesn't run."""

    def leave(self) -> None:
        """Leave the communicator to ``connect``, which ends it."""
        self._connected = False

    def prepare(self) -> None:
        """Wait for an abort that is still in progress, release memory for NCCL, and try a small kernel."""
        self._await_abort()
        torch.cuda.empty_cache()  # NCCL needs up to a gigabyte that torch's allocator does not manage
        end, deadline = self._small_kernel(), time.monotonic() + self.timeout_seconds
        while not end.query():
            if time.monotonic() > deadline:
                raise DeviceFailed(f"the GPU did not run a small kernel within {self.timeout_seconds:g} s")
            time.sleep(_LONGEST_PAUSE_SECONDS)

    def _small_kernel(self) -> Any:
        """Start a kernel, and return an event at its end. The stream is its own, where no long kernel is before it."""
        cuda: Any = torch.cuda  # not typed
        if self._probe is None:  # kept: with another stream torch would allocate again
            self._probe = cuda.Stream(self.device), torch.zeros(1, device=self.device)
        stream, tensor = self._probe
        with cuda.stream(stream):
            tensor.add_(1)
        end = cuda.Event()
        end.record(stream)
        return end

    def connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        """Make a communicator."""
        if self._attempts.pending() > _MOST_ABANDONED:
            raise DeviceFailed(f"NCCL has not returned from {self._attempts.pending()} attempts to connect")
        self.pg = self._attempt(self._meet(uuid, store, rank, size), store)
        self._connected = True

    def _attempt(self, connect: Callable[[], dist.ProcessGroup], store: MeetingStore) -> dist.ProcessGroup:
        """Return what ``connect`` returns, which is called in a thread, while the generation is wanted."""
        late = "the peers were there, and did not connect by NCCL in time: the attempt is abandoned"
        group: dist.ProcessGroup = self._attempts.make(connect, lambda: store.ensure_wanted(late))
        return group

    @abstractmethod
    def _meet(self, uuid: int, store: MeetingStore, rank: int, size: int) -> Callable[[], dist.ProcessGroup]:
        """Exchange what connecting needs. Return the function that connects and returns the group, in any thread.

        The backend has no group from now on; that function aborts the group if it fails.
        """

    def begin(self, tensor: torch.Tensor, seconds: float) -> Any:
        """Start a sum. ``finish`` ends it, not torch."""
        return super().begin(tensor, _FOREVER_SECONDS)

    def broadcast(self, tensor: torch.Tensor, source: int, seconds: float) -> Any:
        """Start a broadcast. ``finish`` ends it, not torch."""
        return super().broadcast(tensor, source, _FOREVER_SECONDS)

    def _library_options(self) -> Any:
        """Return options for communicators that don't block."""
        made: Any = dist.ProcessGroupNCCL.Options()
        made.config.blocking = 0
        made._timeout = backend.duration(self.group_seconds)
        return made

    def finish(self, works: Sequence[Any], check: Callable[[], None], deadline: float) -> bool:
        """Poll an event at the end of all works. Also return when torch reports an error: they may never end then.

        The wait for the others is the time between two events of the device, because its work is not that of the host.
        """
        own = self._own_part = self._mark()
        try:
            for work in works:
                work.wait()  # the stream waits, not this thread
            end = self._mark()
            pause = _FIRST_PAUSE_SECONDS
            while not end.query():
                check()
                if self.error():
                    return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            self.waited_seconds += own.elapsed_time(end) / 1e3
            return True
        finally:
            self._own_part = None

    def waits(self) -> bool:
        """Return whether the device has reached the end of its own part. If it has failed, ``finish`` says so."""
        own = self._own_part
        with contextlib.suppress(RuntimeError):
            return own is not None and bool(own.query())
        return False

    def error(self) -> str:
        """Return torch's error state, which its watchdog thread and ``abort`` set."""
        state: Any = self._state()
        return "" if state.name == "SUCCESS" else f"NCCL reports {state.name}"

    def abort(self) -> None:
        """Abort the communicator; otherwise its kernels, and with them the device, wait for a lost peer for ever.

        In a thread of its own, because NCCL's abort can hang.
        """
        if self._connected:
            self._start_abort()

    def _start_abort(self) -> None:
        if self._aborting is None:
            self._aborting = threading.Thread(target=_abort, args=[self.pg], name="nccl-abort", daemon=True)
            self._aborting.start()

    def _abort_ends(self, seconds: float) -> bool:
        """Return whether no abort is in progress any more after at most ``seconds``."""
        if self._aborting is not None:
            self._aborting.join(seconds)
            if self._aborting.is_alive():
                return False
            self._aborting = None
        return True

    def _await_abort(self) -> None:
        if not self._abort_ends(_ABORT_SECONDS):
            raise DeviceFailed(f"NCCL's abort did not return within {_ABORT_SECONDS:g} s")

    def close(self) -> None:
        """Release the group, unless its abort hangs."""
        self._connected = False
        if hasattr(self, "pg"):
            self._start_abort()
        self._attempts.join(_CLOSE_SECONDS)
        if self._abort_ends(_CLOSE_SECONDS) and hasattr(self, "pg"):
            del self.pg

    def _mark(self) -> Any:
        """Return an event at the end of what the current stream has to do so far."""
        make: Any = torch.cuda.Event  # not typed
        event = make(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _on_device(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which a thread uses the device: torch's current device is that of a thread."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()

    def _state(self) -> Any:
        group: Any = self.pg
        return group._get_backend(self.device).get_error()

    def _forget(self) -> None:
        """End the group, whatever its condition, when its peers have left it too: all are at the rendezvous.

        On one machine a rank must not abort while another one's kernel still reads its memory (NVIDIA/nccl#863).
        """
        if hasattr(self, "pg"):
            self._start_abort()
            self._await_abort()
            del self.pg


class Reconfigured(Nccl):
    """One ProcessGroup object, as long as torch's ``_reconfigure`` accepts it; otherwise another one."""

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        super().__init__(device, timeout_seconds)
        self._store = SwitchedStore()
        self.pg = self._open(self._store, 0, 1, reconfigurable=True)

    def _meet(self, uuid: int, store: MeetingStore, rank: int, size: int) -> Callable[[], dist.ProcessGroup]:
        if not hasattr(self, "pg"):
            self._make(store)
        self._store.current = store
        return self._take(uuid, exchange(store, "handles", rank, size, backend.handle(self.pg)))

    def _make(self, store: MeetingStore) -> None:
        """Make a group that has been alone once.

        Those of torch 2.14 that have not have the same handle in every process, and torch refuses equal handles.
        """
        self._store = SwitchedStore()
        self._store.current = MeetingStore(LocalKeys(), store.ensure_wanted, time.monotonic() + self.connect_seconds)
        self.pg = self._open(self._store, 0, 1, reconfigurable=True)
        self.pg = self._attempt(self._take(secrets.randbits(48), [backend.handle(self.pg)]), store)

    def _take(self, uuid: int, handles: list[str]) -> Callable[[], dist.ProcessGroup]:
        """Return the function that gives the group new peers. After a failure it is unknown what is left of it."""
        group = self.pg
        del self.pg

        def connect() -> dist.ProcessGroup:
            with _aborted_after_a_failure(group), self._on_device():
                backend.reconfigure(group, uuid, handles, self.connect_seconds)
            return group

        return connect


class Restarted(Nccl):
    """A new process group for every generation."""

    def _meet(self, uuid: int, store: MeetingStore, rank: int, size: int) -> Callable[[], dist.ProcessGroup]:
        self._forget()
        return functools.partial(self._make, store, rank, size)

    def _make(self, store: MeetingStore, rank: int, size: int) -> dist.ProcessGroup:
        """Return a new group that has summed once: communicators that don't block connect before their first sum."""
        group = self._open(store, rank, size)
        with _aborted_after_a_failure(group), self._on_device():
            first: Any = torch.zeros(1, dtype=torch.float64, device=self.device)
            group.allreduce([first], backend.options(_FOREVER_SECONDS)).wait()
        return group


def _abort(group: Any) -> None:
    with contextlib.suppress(RuntimeError):
        group.abort()


@contextlib.contextmanager
def _aborted_after_a_failure(group: dist.ProcessGroup) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _abort(group)
        raise
