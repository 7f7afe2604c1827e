"""The values of fields that accept one of a few."""

from __future__ import annotations

from enum import StrEnum


class RestartPolicy(StrEnum):
    """What happens after a container exits with a failure."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class PodNames(StrEnum):
    """How the pods of one type are named."""

    INDEXED = "Indexed"
    SUCCESSIVE = "Successive"
    SINGLE = "Single"


class RestartScope(StrEnum):
    """What is made anew when a pod is replaced."""

    POD = "Pod"
    JOB = "Job"


class Launcher(StrEnum):
    """How a worker learns of its job."""

    TORCHELASTIC = "torchelastic"
    TORCHRUN = "torchrun"
    TIDEWATER = "tidewater"
    NONE = "none"


class SuccessPolicy(StrEnum):
    """Which pods must succeed for the job to succeed."""

    RANK0 = "Rank0"
    ANY_WORKER = "AnyWorker"
    ALL_WORKERS = "AllWorkers"
    ALL_PODS = "AllPods"


class CleanPodPolicy(StrEnum):
    """Which pods of a finished job are deleted."""

    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class State(StrEnum):
    """Where a job is in its life, in one word."""

    CREATED = "Created"
    QUEUED = "Queued"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
