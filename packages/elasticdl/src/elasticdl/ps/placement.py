"""Which server holds what, as pure functions.

server_of("classifier.weight", 3)            # of a dense parameter: by its name
split(torch.tensor([5, 2, 4]), 2)            # of rows: id modulo the number of servers

Neither depends on what else there is, so a checkpoint can be restored at another number of servers, and a worker needs
no table to find a parameter.
"""

from __future__ import annotations

import hashlib

import torch


def server_of(name: str, servers: int) -> int:
    """Return the index of the server that holds a dense parameter.

    The first 8 bytes of the SHA-256 of its name, modulo the number of servers: Python's own `hash` differs from process
    to process.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % servers


def split(ids: torch.Tensor, servers: int) -> list[torch.Tensor]:
    """Return, for each server, the positions in `ids` of the ids that it holds, in their order."""
    owners = ids % servers
    return [(owners == index).nonzero().reshape(-1) for index in range(servers)]


def coalesced(ids: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each id once, ascending, with the sum of its rows.

    torch's own sparse tensor adds up, so that the sums equal, to the bit, those that a sparse optimizer of torch uses.

    Args:
        ids: int64, (n,).
        values: (n, dim).
    """
    unique, inverse = torch.unique(ids, sorted=True, return_inverse=True)
    if unique.numel() == ids.numel():
        order = torch.argsort(ids)
        return ids[order], values[order]
    size = (unique.numel(), values.shape[1])
    summed = torch.sparse_coo_tensor(inverse[None], values, size, check_invariants=False)
    return unique, summed.coalesce().values()
