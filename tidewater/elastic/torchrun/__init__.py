"""etcd v3 as a rendezvous for plain ``torchrun``; torch finds it by an entry point of this distribution.

    pip install .
    torchrun --nnodes=1:4 --max-restarts=10 --rdzv-id=digits \\
        --rdzv-backend=etcd-v3 --rdzv-endpoint=etcd-0:2379,etcd-1:2379,etcd-2:2379 train.py

    rounds     which nodes run together: frozen records and one pure function that decides
    options    --rdzv-endpoint and --rdzv-conf
    handler    torch's RendezvousHandler; it follows etcd by ``tidewater.elastic.etcd.mirror``

torch's own etcd backends use an API that etcd removed in 3.6. A ``RendezvousBackend`` stores only one blob, so the loss
of a node is noticed only when a collective times out. This is a complete handler: a node is lost when its lease ends,
and then ``num_nodes_waiting`` makes torchrun's agents restart their workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousHandlerCreator


def creator() -> RendezvousHandlerCreator:
    """Return the function that creates handlers; the entry point ``etcd-v3`` calls this."""
    from tidewater.elastic.torchrun.handler import create

    return create
