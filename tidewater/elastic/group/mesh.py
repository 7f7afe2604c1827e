"""The processes of one worker that divide a model among them, as torch sees them.

fully_shard(model, mesh=config.mesh)

They are torch's default group, which lives as long as the worker: if one of them is lost, all are started again. What
sums over the workers is another group, see ``group``. On one machine they meet at a file and use the loopback
interface; on several, in the launcher of the first machine, which serves their keys, and by the interface on which the
other workers reach this one, too.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidewater.elastic.errors import ConfigError, TrainerError
from tidewater.elastic.observe.log import Lasting, Log
from tidewater.elastic.peer import keyvalue
from tidewater.elastic.peer.keyvalue import Place

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

_LONGEST = timedelta(days=7)
"""Wait for another process of the worker: the launcher ends them all if one ends."""
_INTERFACE = "GLOO_SOCKET_IFNAME"
_LOOK_SECONDS, _SAY_SECONDS = 0.05, 30.0
MEETING_SECONDS = 3600.0
"""Time in which all processes of a worker must have come to the same place of the script."""


@functools.cache
def mesh_of(meeting: str, who: tuple[int, int], worker: str, host: str = "") -> DeviceMesh:
    """Return the mesh of the processes that divide a model. With several, wait for the others.

    Raise ConfigError if the script has made a default group of its own, and TrainerError if the others don't come.

    Args:
        meeting: A file that does not exist before, or a ``Place``, for these processes only; empty for one process.
        who: The index of this process, and their number.
        worker: Their worker, for the log.
        host: Address of this machine for the others; empty if all of them are on this one.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if dist.is_initialized():
        raise ConfigError(
            "the script has called torch.distributed.init_process_group(), and the processes of a worker that divide a "
            "model are torch's default group, which config.mesh makes: leave that call out"
        )
    (index, size), store = who, _store(meeting, who[1])
    meet(store, "config.mesh", who, worker, MEETING_SECONDS)
    with _on_interface_of(host):
        dist.init_process_group("gloo", store=store, rank=index, world_size=size, timeout=_LONGEST)
    atexit.register(dist.destroy_process_group)  # its threads must not outlive the interpreter
    return init_device_mesh("cpu", (size,))


def further_sum(who: tuple[int, int], worker: str) -> Callable[[torch.Tensor], object]:
    """Return what adds a tensor of all these processes, in place, apart from the collectives of the model.

    It has a group of gloo that torch's global state doesn't know, on the default group's device: each device has a
    thread that wakes up 100 times a second. Wait for the others. Raise TrainerError if they don't come.
    """
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo
    from torch.distributed.distributed_c10d import _get_default_store

    meet_again("the end of the script's preparations", MEETING_SECONDS, who, worker)
    index, size = who
    default: Any = dist.group.WORLD
    gloo: Any = ProcessGroupGloo  # not typed
    options = gloo._Options()
    options._devices = default._get_backend(torch.device("cpu")).options._devices
    options._threads, options._timeout = 1, _LONGEST
    groups = [gloo(PrefixStore("further", _get_default_store()), index, size, options)]
    atexit.register(groups.clear)  # its thread must not outlive the interpreter
    return lambda tensor: groups[0].allreduce([tensor]).wait()


@functools.cache  # torch calls the methods of a store in Python only as long as Python has it
def _store(meeting: str, size: int) -> Any:
    """Return the store of torch at which the processes meet."""
    # torch.distributed offers them too, but its type information does not say so.
    from torch._C._distributed_c10d import FileStore, HashStore

    place = Place.of(meeting)
    if place is None:
        return FileStore(meeting, size) if meeting else HashStore()
    from tidewater.elastic.group.rendezvous import MeetingStore

    return MeetingStore(keyvalue.lasting(place), lambda: None, math.inf)


def meet_again(place: str, seconds: float, who: tuple[int, int], worker: str) -> None:
    """Do ``meet`` in the store of torch's default group."""
    from torch.distributed.distributed_c10d import _get_default_store

    meet(_get_default_store(), place, who, worker, seconds)


def meet(store: Any, place: str, who: tuple[int, int], worker: str, limit: float) -> None:
    """Wait until all processes of the worker have come to a place of the script, and say for which ones.

    Raise TrainerError if they take too long.

    Args:
        store: A store of torch that all of them have.
        place: Its name, for a person.
        who: The index of this process, and their number.
        worker: Of these processes.
        limit: Of the wait, in seconds.
    """
    (index, size), began = who, time.monotonic()
    name = f"{worker}.{index}" if index else worker
    line = Lasting(Log(name), "waiting")
    store.set(f"{place} {index}", "")
    while absent := [each for each in range(size) if not store.check([f"{place} {each}"])]:
        names, seconds = ", ".join(f"{worker}.{each}" if each else worker for each in absent), time.monotonic() - began
        if seconds > limit:
            raise TrainerError(
                f"{names} did not come to {place} in {limit:g} s, where {name} has waited: all processes of "
                "a worker that divide a model must run the same code of the script"
            )
        if seconds > _SAY_SECONDS:
            line.say(reason="processes", waits_for=names, place=place)
        time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def _on_interface_of(host: str) -> Iterator[None]:
    """Give a context in which gloo uses the interface of that address, or the loopback interface if all processes are
    on this machine. Between machines, one that the environment names comes first, as in ``use_interface_of``."""
    from tidewater.elastic.group.rendezvous import interface_of

    before = os.environ.get(_INTERFACE)
    name = before or interface_of(host) if host else "lo"
    if name:
        os.environ[_INTERFACE] = name
    try:
        yield
    finally:
        os.environ.pop(_INTERFACE, None)
        if before is not None:
            os.environ[_INTERFACE] = before
