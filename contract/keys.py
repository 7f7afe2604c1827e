"""Where the elastic runtime keeps its records in etcd, and the versions of those records.

/tidewater/<job>/generation           the membership all workers agree on (GENERATION_VERSION)
/tidewater/<job>/members/<member id>  one per living worker, bound to its lease (MEMBER_VERSION)
/tidewater/<job>/finished             written once, at the end of the job (FINISHED_VERSION)
"""

from __future__ import annotations

ROOT = "/tidewater"

GENERATION_VERSION = 1
MEMBER_VERSION = 1
FINISHED_VERSION = 1


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
