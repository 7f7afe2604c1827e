"""Environment variables that the manifests set and the trainer reads.

For each of them the trainer has a command-line flag, which overrides it. There is none for ETCD_PASSWORD, SECRET and
PACKAGES, and none for the names that begin with LOCAL: only the launcher sets these, for the processes that it
starts.
"""

from __future__ import annotations

JOB = "TIDEWATER_JOB"
"""Name of the training job, and the run's id in etcd. Required."""

ETCD = "TIDEWATER_ETCD"
"""Client URLs of etcd, comma-separated: ``http://etcd.ns.svc:2379``. Required."""

ETCD_USER = "TIDEWATER_ETCD_USER"
"""Name of the etcd user of this job's workers. Default: none."""

ETCD_PASSWORD = "TIDEWATER_ETCD_PASSWORD"
"""Password of that user, from a secret. It has no flag, since every user of a machine can read command lines."""

ETCD_CACERT = "TIDEWATER_ETCD_CACERT"
"""File with the certificate authorities to trust for etcd's certificate. Default: the system's."""

ETCD_CERT = "TIDEWATER_ETCD_CERT"
"""File with the workers' client certificate, for an etcd that requires one."""

ETCD_KEY = "TIDEWATER_ETCD_KEY"
"""File with the key of that certificate."""

SECRET = "TIDEWATER_SECRET"
"""The secret with which the job's workers authenticate to each other: at least 32 characters, the same for all of them.
Default: a random one, which the first worker writes to etcd."""

WORKER = "TIDEWATER_WORKER"
"""Name of this worker in logs and metrics: the pod's name. Default: the host's name."""

HOST = "TIDEWATER_HOST"
"""Address at which the other workers reach this one: the pod's IP. Default: the source address of the route to etcd."""

MIN_WORKERS = "TIDEWATER_MIN_WORKERS"
"""Training waits while fewer workers than this are present. Default 1."""

MAX_WORKERS = "TIDEWATER_MAX_WORKERS"
"""Workers beyond this number wait in line. Default 8."""

DATA = "TIDEWATER_DATA"
"""Directory of the dataset, in ImageFolder layout. Required."""

CHECKPOINTS = "TIDEWATER_CHECKPOINTS"
"""Where this job's checkpoints go: a directory on a volume that all workers share, ``s3://BUCKET/PREFIX``, or both
with a comma between them. Required."""

PACKAGES = "TIDEWATER_PACKAGES"
"""Folder of the packages that a job has installed, in a folder for each Python: the code bundle adds it to `sys.path`.
Default: none. It has no flag, since a flag is read later."""

METRICS_PORT = "TIDEWATER_METRICS_PORT"
"""TCP port of a worker's metrics for Prometheus. Default 0: none. A worker of several processes uses as many ports,
starting with this one."""

PROCESSES = "TIDEWATER_PROCESSES"
"""Number of processes that a worker starts, one for each of its GPUs, or ``auto``. Default 1."""

LOCAL_RANK = "TIDEWATER_LOCAL_RANK"
"""Index of this process among its worker's processes, from 0."""

LOCAL_SIZE = "TIDEWATER_LOCAL_SIZE"
"""Number of the processes of its launcher."""

SHARD = "TIDEWATER_SHARD"
"""Number of processes that divide one model among them, and are one worker. Default 1: each has the whole model."""

SHARD_NODES = "TIDEWATER_SHARD_NODES"
"""Number of machines over which the processes that divide one model are spread, with a launcher on each. Default 1."""

SHARD_NODE = "TIDEWATER_SHARD_NODE"
"""Number of this machine among them, from 0. Default 0."""

REPLICA = "TIDEWATER_REPLICA"
"""Name that these machines share, which is the worker's name for all others. Default: WORKER."""

LOCAL_MEETING = "TIDEWATER_LOCAL_MEETING"
"""Where the processes of such a worker meet: a file, or an address if they are on several machines. Another one each
time that they are started."""

LOCAL_LIMIT = "TIDEWATER_LOCAL_LIMIT"
"""File with the number of samples that fit in their memory, for and from these processes. The same one each time."""

FIXED_HASHES = {"PYTHONHASHSEED": "0"}
"""Python's own: the order of a set of strings is the same in all workers, and so is a split of the data by it."""
