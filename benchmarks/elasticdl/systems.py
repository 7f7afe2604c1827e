"""What is compared, and the measures, by their names in the records and in the tables' order."""

from __future__ import annotations

from dataclasses import dataclass

PLAIN, LOCAL, SERVERS, ALLREDUCE = "plain", "local", "servers", "all-reduce"
TWO_JOBS = "two jobs"

PAUSE_SECONDS = 0.03
"""Of each minibatch, in place of an accelerator."""

COMPUTING = "records/s, all computing"
PACED = "records/s, with 30 ms for each minibatch"
NOTICED = "SIGKILL of a worker, until its task is given to others"
REPLACED = "start of the new worker's process, until it has pushed its first minibatch"
BOTH_DONE = "two jobs of 4 workers on 6 rooms, until both are done"
SECOND_TRAINS = "two jobs of 4 workers on 6 rooms, until the second one's first minibatch"
UNITS = {COMPUTING: "records/s", PACED: "records/s", NOTICED: "s", REPLACED: "s", BOTH_DONE: "s", SECOND_TRAINS: "s"}


@dataclass(frozen=True)
class System:
    """One way to train."""

    name: str
    kind: str
    workers: int = 1
    servers: int = 0
    synchronous: bool = False


SYSTEMS = (
    System("plain PyTorch, one process", PLAIN),
    System("Local, one process", LOCAL),
    System("1 server, 1 worker, async", SERVERS, 1, 1),
    System("1 server, 2 workers, async", SERVERS, 2, 1),
    System("1 server, 4 workers, async", SERVERS, 4, 1),
    System("2 servers, 1 worker, async", SERVERS, 1, 2),
    System("2 servers, 2 workers, async", SERVERS, 2, 2),
    System("2 servers, 4 workers, async", SERVERS, 4, 2),
    System("2 servers, 4 workers, sync", SERVERS, 4, 2, synchronous=True),
    System("all-reduce, 1 worker", ALLREDUCE, 1),
    System("all-reduce, 2 workers", ALLREDUCE, 2),
    System("all-reduce, 4 workers", ALLREDUCE, 4),
)
GANGS = System("gang-scheduled", TWO_JOBS, 4, 1)
ELASTIC = System("elastic", TWO_JOBS, 4, 1)
SHARING = (GANGS, ELASTIC)
"""How two jobs share a cluster that has too little room for both. Workers and servers are those of one job."""
BY_NAME = {system.name: system for system in (*SYSTEMS, *SHARING)}
REPLACEMENT = BY_NAME["2 servers, 2 workers, async"]
"""The system that loses a worker."""
