"""etcd v3 as a rendezvous for plain ``torchrun``, found by torch through an entry point of this distribution.

    pip install .
    torchrun --nnodes=1:4 --max-restarts=10 --rdzv-id=digits \\
        --rdzv-backend=etcd-v3 --rdzv-endpoint=etcd-0:2379,etcd-1:2379,etcd-2:2379 train.py

    rounds     which nodes run together: frozen records and one pure function that decides
    options    --rdzv-endpoint and --rdzv-conf
    mirror     a copy of the records in etcd, kept current, and this node's lease
    handler    torch's RendezvousHandler, made of these

torch's own etcd backends speak an API that etcd removed in 3.6, and act on one blob behind ``RendezvousBackend``, so
that the loss of a node is noticed only by the next collective that times out. This is a whole handler: a node is lost
when its lease ends, and ``num_nodes_waiting`` then has torchrun's agents restart their workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousHandlerCreator


def creator() -> RendezvousHandlerCreator:
    """What the entry point ``etcd-v3`` of group ``torchrun.handlers`` names: returns the maker of handlers."""
    from trainer.torchrun.handler import create

    return create
