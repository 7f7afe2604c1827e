"""Where the elastic runtime keeps its records in etcd, and the versions of those records.

/tidewater/<job>/generation           the membership all workers agree on (GENERATION_VERSION)
/tidewater/<job>/members/<member id>  one per living worker, bound to its lease (MEMBER_VERSION)
/tidewater/<job>/finished             written once, at the end of the job (FINISHED_VERSION)

and the torchrun plug-in its own (all RENDEZVOUS_VERSION):

/tidewater-torchrun/<rdzv-id>/round            the nodes that run together
/tidewater-torchrun/<rdzv-id>/nodes/<node id>  one per living agent, bound to its lease
/tidewater-torchrun/<rdzv-id>/closed           the run is over; bound to a lease, so that the id can be used again
"""

from __future__ import annotations

ROOT = "/tidewater"
RENDEZVOUS_ROOT = "/tidewater-torchrun"

GENERATION_VERSION = 2
MEMBER_VERSION = 2
FINISHED_VERSION = 1
RENDEZVOUS_VERSION = 1


def job(name: str) -> str:
    """Prefix of everything that belongs to job ``name``; ends with a slash."""
    return f"{ROOT}/{name}/"


def generation(name: str) -> str:
    """Key of the generation record of job ``name``."""
    return f"{job(name)}generation"


def members(name: str) -> str:
    """Prefix of the member records of job ``name``; ends with a slash."""
    return f"{job(name)}members/"


def member(name: str, member_id: str) -> str:
    """Key of one member's record."""
    return f"{members(name)}{member_id}"


def finished(name: str) -> str:
    """Key that exists once job ``name`` has finished."""
    return f"{job(name)}finished"


def rendezvous(run_id: str) -> str:
    """Prefix of everything that belongs to torchrun's ``--rdzv-id``; ends with a slash."""
    return f"{RENDEZVOUS_ROOT}/{run_id}/"


def rendezvous_round(run_id: str) -> str:
    """Key of the round that all nodes of a run agree on."""
    return f"{rendezvous(run_id)}round"


def rendezvous_nodes(run_id: str) -> str:
    """Prefix of the nodes' records; ends with a slash."""
    return f"{rendezvous(run_id)}nodes/"


def rendezvous_node(run_id: str, node_id: str) -> str:
    """Key of one node's record."""
    return f"{rendezvous_nodes(run_id)}{node_id}"


def rendezvous_closed(run_id: str) -> str:
    """Key that exists once a run is over."""
    return f"{rendezvous(run_id)}closed"
