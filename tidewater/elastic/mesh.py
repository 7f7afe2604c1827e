"""The processes of one worker that divide a model among them, as torch sees them.

fully_shard(model, mesh=config.mesh)

They are torch's default group, which lives as long as the worker: if one of them is lost, all are started again. What
sums over the workers is another group, see ``group``.
"""

from __future__ import annotations

import atexit
import functools
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tidewater.elastic.errors import ConfigError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_LONGEST = timedelta(days=7)
"""Wait for another process of the worker: the launcher ends them all if one ends."""
_INTERFACE = "GLOO_SOCKET_IFNAME"


@functools.cache
def mesh_of(meeting: Path | None, index: int, size: int) -> DeviceMesh:
    """Return the mesh of ``size`` processes, this one with that index. With several, wait for the others.

    Raise ConfigError if the script has made a default group of its own.

    Args:
        meeting: A file that does not exist before, for these processes only; None for one process.
        index: Of this process.
        size: Number of processes.
    """
    import torch.distributed as dist

    # torch.distributed offers them too, but its type information does not say so.
    from torch._C._distributed_c10d import FileStore, HashStore
    from torch.distributed.device_mesh import init_device_mesh

    if dist.is_initialized():
        raise ConfigError(
            "the script has called torch.distributed.init_process_group(), and the processes of a worker that divide a "
            "model are torch's default group, which config.mesh makes: leave that call out"
        )
    store = FileStore(str(meeting), size) if meeting else HashStore()
    before = os.environ.get(_INTERFACE)
    os.environ[_INTERFACE] = "lo"  # they are on one machine
    try:
        dist.init_process_group("gloo", store=store, rank=index, world_size=size, timeout=_LONGEST)
    finally:
        os.environ.pop(_INTERFACE)
        if before is not None:
            os.environ[_INTERFACE] = before
    atexit.register(dist.destroy_process_group)  # its threads must not outlive the interpreter
    return init_device_mesh("cpu", (size,))
