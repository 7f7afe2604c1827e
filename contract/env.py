"""Environment variables that the manifests set and the trainer reads.

Every one of them has a command-line flag of the trainer that wins over it.
"""

from __future__ import annotations

JOB = "TIDEWATER_JOB"
"""Name of the training job, and the run's id in etcd. Required."""

ETCD = "TIDEWATER_ETCD"
"""Client URLs of etcd, comma-separated: ``http://etcd.ns.svc:2379``. Required."""

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
"""Directory of this job's checkpoints, on a volume that all workers share. Required."""

METRICS_PORT = "TIDEWATER_METRICS_PORT"
"""TCP port on which a worker shows its metrics to Prometheus. Default 0: on none."""
