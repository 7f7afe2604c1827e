"""Environment variables that the manifests set and the trainer reads.

Every one of them has a command-line flag of the trainer that wins over it; but for ETCD_PASSWORD, and for LOCAL_RANK
and LOCAL_SIZE, which the trainer's launcher sets for the processes that it starts, and nobody else.
"""

from __future__ import annotations

JOB = "TIDEWATER_JOB"
"""Name of the training job, and the run's id in etcd. Required."""

ETCD = "TIDEWATER_ETCD"
"""Client URLs of etcd, comma-separated: ``http://etcd.ns.svc:2379``. Required."""

ETCD_USER = "TIDEWATER_ETCD_USER"
"""Name of the user that etcd knows this job's workers by. Default: none."""

ETCD_PASSWORD = "TIDEWATER_ETCD_PASSWORD"
"""That user's password, from a secret. It has no flag, since everybody on a machine can read command lines."""

ETCD_CACERT = "TIDEWATER_ETCD_CACERT"
"""File with the authorities that may have signed etcd's certificate. Default: the system's."""

ETCD_CERT = "TIDEWATER_ETCD_CERT"
"""File with the workers' certificate, for an etcd that asks for one."""

ETCD_KEY = "TIDEWATER_ETCD_KEY"
"""File with the key of that certificate."""

WORKER = "TIDEWATER_WORKER"
"""Name of this worker, for people: the pod's name. Default: the host's name."""

HOST = "TIDEWATER_HOST"
"""Address under which the other workers reach this one: the pod's IP. Default: found by the route to etcd."""

MIN_WORKERS = "TIDEWATER_MIN_WORKERS"
"""Training waits while fewer workers than this are present. Default 1."""

MAX_WORKERS = "TIDEWATER_MAX_WORKERS"
"""Workers beyond this number wait in line. Default 8."""

DATA = "TIDEWATER_DATA"
"""Directory of the dataset, in ImageFolder layout. Required."""

CHECKPOINTS = "TIDEWATER_CHECKPOINTS"
"""Where this job's checkpoints go: a directory on a volume that all workers share, ``s3://BUCKET/PREFIX``, or both
with a comma between them. Required."""

METRICS_PORT = "TIDEWATER_METRICS_PORT"
"""TCP port on which a worker shows its metrics to Prometheus. Default 0: on none. A worker of several processes uses
as many ports, counted from here."""

PROCESSES = "TIDEWATER_PROCESSES"
"""How many processes a worker starts, one for each of its GPUs: a number, or ``auto``. Default 1."""

LOCAL_RANK = "TIDEWATER_LOCAL_RANK"
"""Which of its worker's processes this one is, from 0."""

LOCAL_SIZE = "TIDEWATER_LOCAL_SIZE"
"""How many processes its worker has."""
