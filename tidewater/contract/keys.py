"""Keys of the elastic runtime's records in etcd, and the versions of those records.

/tidewater/<job>/generation           the membership that all workers agree on (GENERATION_VERSION)
/tidewater/<job>/members/<member id>  one per living worker, bound to its lease (MEMBER_VERSION)
/tidewater/<job>/secret               with which its workers authenticate to each other (SECRET_VERSION)
/tidewater/<job>/saved                the last checkpoint that was written (SAVED_VERSION)
/tidewater/<job>/finished             written once, at the end of the job (FINISHED_VERSION)
/tidewater/<job>/broken               of a large job: the last generation that broke (BROKEN_VERSION)
/tidewater/<job>/change               of a job that was large once: in what its generation differs from the one before,
                                      written together with it (CHANGE_VERSION). It comes before the generation, so a
                                      range can have it without that
/tidewater/<job>/deciding/<member id> of a large job: one, without content, per member that decides, bound to its lease
/tidewater/<job>/votes/<member id>    of a large job: what only those that decide read (VOTE_VERSION)
/tidewater/<job>/workers/<name>       of a worker over several machines: where the launcher of the first one is
                                      (LAUNCHER_VERSION). Votes and these come last, so that a range ends before them

The torchrun plug-in has its own (all RENDEZVOUS_VERSION):

/tidewater-torchrun/<rdzv-id>/round            the nodes of the current round
/tidewater-torchrun/<rdzv-id>/nodes/<node id>  one per living agent, bound to its lease
/tidewater-torchrun/<rdzv-id>/secret           as above, for its agents
/tidewater-torchrun/<rdzv-id>/closed           the run has ended; bound to a lease, so that the id can be used again

The master of an ElasticDL job has its own (all ELASTICDL_VERSION); a job that is submitted again is another run:

/elasticdl/<job>/<run>/state                   all that the master must not forget
/elasticdl/<job>/<run>/masters/<name>          one per living master, bound to its lease; the oldest one leads
/elasticdl/<job>/<run>/parts/<evaluation>/<task>  the metrics of one evaluation task, until the evaluation is over
"""

from __future__ import annotations

ROOT = "/tidewater"
RENDEZVOUS_ROOT = "/tidewater-torchrun"
ELASTICDL_ROOT = "/elasticdl"

GENERATION_VERSION = 5
MEMBER_VERSION = 5
LAUNCHER_VERSION = 1
SAVED_VERSION = 1
BROKEN_VERSION = 1
CHANGE_VERSION = 1
VOTE_VERSION = 1
FINISHED_VERSION = 1
RENDEZVOUS_VERSION = 2
SECRET_VERSION = 1
ELASTICDL_VERSION = 2


def job(name: str) -> str:
    """Return the prefix of everything that belongs to job ``name``; ends with a slash."""
    return f"{ROOT}/{name}/"


def generation(name: str) -> str:
    """Return the key of the generation record of job ``name``."""
    return f"{job(name)}generation"


def members(name: str) -> str:
    """Return the prefix of the member records of job ``name``; ends with a slash."""
    return f"{job(name)}members/"


def member(name: str, member_id: str) -> str:
    """Return the key of one member's record."""
    return f"{members(name)}{member_id}"


def secret(name: str) -> str:
    """Return the key of the secret of job ``name``."""
    return f"{job(name)}secret"


def saved(name: str) -> str:
    """Return the key of the record of the last checkpoint of job ``name``."""
    return f"{job(name)}saved"


def finished(name: str) -> str:
    """Return the key that exists once job ``name`` has finished."""
    return f"{job(name)}finished"


def broken(name: str) -> str:
    """Return the key of the last generation of job ``name`` that broke."""
    return f"{job(name)}broken"


def change(name: str) -> str:
    """Return the key of the last change of the generation of job ``name``."""
    return f"{job(name)}change"


def deciding(name: str, member_id: str) -> str:
    """Return the key that exists while a member of job ``name`` decides for others."""
    return f"{job(name)}deciding/{member_id}"


def votes(name: str) -> str:
    """Return the prefix of what members say only to those that decide; ends with a slash."""
    return f"{job(name)}votes/"


def vote(name: str, member_id: str) -> str:
    """Return the key of what one member says to those that decide."""
    return f"{votes(name)}{member_id}"


def launcher(name: str, worker: str) -> str:
    """Return the key of the place at which a worker of job ``name`` over several machines has its first launcher."""
    return f"{job(name)}workers/{worker}"


def rendezvous(run_id: str) -> str:
    """Return the prefix of everything that belongs to torchrun's ``--rdzv-id``; ends with a slash."""
    return f"{RENDEZVOUS_ROOT}/{run_id}/"


def rendezvous_round(run_id: str) -> str:
    """Return the key of the round that all nodes of a run agree on."""
    return f"{rendezvous(run_id)}round"


def rendezvous_nodes(run_id: str) -> str:
    """Return the prefix of the nodes' records; ends with a slash."""
    return f"{rendezvous(run_id)}nodes/"


def rendezvous_node(run_id: str, node_id: str) -> str:
    """Return the key of one node's record."""
    return f"{rendezvous_nodes(run_id)}{node_id}"


def rendezvous_secret(run_id: str) -> str:
    """Return the key of the secret of a run's agents."""
    return f"{rendezvous(run_id)}secret"


def rendezvous_closed(run_id: str) -> str:
    """Return the key that exists once a run has ended."""
    return f"{rendezvous(run_id)}closed"


def elasticdl(name: str, run: str) -> str:
    """Return the prefix of everything that belongs to a run of ElasticDL job ``name``; ends with a slash."""
    return f"{ELASTICDL_ROOT}/{name}/{run}/"


def elasticdl_state(name: str, run: str) -> str:
    """Return the key of the master's record."""
    return f"{elasticdl(name, run)}state"


def elasticdl_masters(name: str, run: str) -> str:
    """Return the prefix of the records of living masters; ends with a slash."""
    return f"{elasticdl(name, run)}masters/"


def elasticdl_master(name: str, run: str, master: str) -> str:
    """Return the key of one master's record."""
    return f"{elasticdl_masters(name, run)}{master}"


def elasticdl_parts(name: str, run: str, evaluation: int) -> str:
    """Return the prefix of the parts of one evaluation; ends with a slash."""
    return f"{elasticdl(name, run)}parts/{evaluation}/"


def elasticdl_part(name: str, run: str, evaluation: int, task: int) -> str:
    """Return the key of the metrics of one evaluation task."""
    return f"{elasticdl_parts(name, run, evaluation)}{task}"
