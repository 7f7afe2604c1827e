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
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tidewater.elastic.errors import DeviceFailed
from tidewater.elastic.group import backend
from tidewater.elastic.group.backend import Backend
from tidewater.elastic.group.rendezvous import MeetingStore, SwitchedStore

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 20e-6, 1e-3
"""Between two looks at an event: at first about what one look takes, at last far less than a heartbeat."""
_ABORT_SECONDS = 20.0
"""NCCL's abort takes less than a second, unless it hangs."""
_CLOSE_SECONDS = 5.0
"""Longest wait for an abort when the process ends anyway."""


class Nccl(Backend):
    """What both ways to form the group have in common."""

    name = "nccl"

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        super().__init__(device, timeout_seconds)
        self._connected = False
        """Whether there is a communicator that ``abort`` may end. torch doesn't lock it against ``_reconfigure``."""
        self._aborting: threading.Thread | None = None

    def leave(self) -> None:
        """Leave the communicator to ``connect``, which ends it."""
        self._connected = False

    def prepare(self) -> None:
        """Wait for an abort that is still in progress, release memory for NCCL, and try a small kernel.

        The kernel runs behind all that the stream still has to do, so it may take as long as a collective.
        """
        if not self._abort_ends(_ABORT_SECONDS):
            raise DeviceFailed(f"NCCL's abort did not return within {_ABORT_SECONDS:g} s")
        torch.cuda.empty_cache()  # NCCL needs up to a gigabyte that torch's allocator does not manage
        torch.zeros(1, device=self.device).add_(1)
        end, deadline = self._mark(), time.monotonic() + self.timeout_seconds
        while not end.query():
            if time.monotonic() > deadline:
                raise DeviceFailed(f"the GPU did not run a small kernel within {self.timeout_seconds:g} s")
            time.sleep(_LONGEST_PAUSE_SECONDS)

    def connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        """Make a communicator."""
        self._connect(uuid, store, rank, size)
        self._connected = True

    @abstractmethod
    def _connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None: ...

    def finish(self, works: Sequence[Any], check: Callable[[], None], deadline: float) -> bool:
        """Poll an event at the end of all works. Also return when torch reports an error: they may never end then."""
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
        return True

    def error(self) -> str:
        """Return torch's error state, which its watchdog thread and ``abort`` set."""
        state: Any = self._state()
        return "" if state.name == "SUCCESS" else f"NCCL reports {state.name}"

    def abort(self) -> None:
        """Abort the communicator; otherwise its kernels, and with them the device, wait for a lost peer for ever.

        In a thread of its own, because NCCL's abort can hang.
        """
        if self._connected and self._aborting is None:
            self._aborting = threading.Thread(target=self._abort, name="nccl-abort", daemon=True)
            self._aborting.start()

    def _abort(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.pg.abort()

    def _abort_ends(self, seconds: float) -> bool:
        """Return whether no abort is in progress any more after at most ``seconds``."""
        if self._aborting is not None:
            self._aborting.join(seconds)
            if self._aborting.is_alive():
                return False
            self._aborting = None
        return True

    def close(self) -> None:
        """Release the group, unless its abort hangs."""
        if self._abort_ends(_CLOSE_SECONDS):
            self._forget()

    def _mark(self) -> Any:
        """Return an event at the end of what the current stream has to do so far."""
        make: Any = torch.cuda.Event  # not typed
        event = make()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _state(self) -> Any:
        group: Any = self.pg
        return group._get_backend(self.device).get_error()

    def _forget(self) -> None:
        """End the process group, whatever its condition."""
        if hasattr(self, "pg"):
            self.pg.abort()
            del self.pg


class Reconfigured(Nccl):
    """One ProcessGroup object, as long as torch's ``_reconfigure`` accepts it; otherwise another one."""

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        super().__init__(device, timeout_seconds)
        self._store = SwitchedStore()
        self._make()
        self._usable = True

    def _make(self) -> None:
        self._open(self._store, 0, 1, reconfigurable=True)

    def _connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        if not self._usable:
            self._forget()
            self._make()
        self._store.current = store
        store.set(f"handle/{rank}", backend.handle(self.pg))
        handles = [store.get(f"handle/{each}").decode() for each in range(size)]
        self._usable = False  # after a failure it is unknown what is left of it
        backend.reconfigure(self.pg, uuid, handles, self.connect_seconds)
        self._usable = True


class Restarted(Nccl):
    """A new process group for every generation."""

    def _connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        self._forget()
        self._open(store, rank, size)
        self._connect_now()

    def _connect_now(self) -> None:
        """Connect before the first sum, where a lost peer could not be reported."""
        group: Any = self.pg
        group.bound_device_id = self.device
        group._get_backend(self.device).eager_connect_single_device(self.device)
