"""What a command line asks for, as typed values: what the processes get, and how they are deployed.

asked = Asked(args=JobArgs(job_name="mnist", …), deployment=Deployment(image_name="my/image"), place=Where())
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from elasticdl.client.flags.values import Volume, WorkerPriority
from elasticdl.job import JobArgs


class PullPolicy(StrEnum):
    """When a node pulls an image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Ship(StrEnum):
    """What goes with a job, through the stack's bucket."""

    ALL = "all"
    """The code of the processes, and the zoo."""
    CODE = "code"
    """The code; the zoo is in the image, as in one of `elasticdl zoo build`."""
    NOTHING = "nothing"
    """The image has everything."""


class Restart(StrEnum):
    """Who starts a process again that has failed: the controller in another pod (Never), or the kubelet in its pod."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What the pods of one kind request, and what they may use."""

    request: Mapping[str, str]
    limit: Mapping[str, str] = field(default_factory=dict)
    """Empty: what they request."""

    @property
    def limits(self) -> Mapping[str, str]:
        """Return what they may use."""
        return self.limit or self.request


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """How the processes run on the cluster."""

    image_name: str = ""
    worker_image: str = ""
    ps_image: str = ""
    image_pull_policy: PullPolicy | None = None
    """None: Kubernetes' own, which pulls images with the tag `latest` always, and others if they aren't there."""
    ship: Ship | None = None
    """None: all of it, or what the image of `zoo build` lacks, if the namespace is a stack's."""
    restart_policy: Restart = Restart.NEVER
    relaunch_on_worker_failure: int = 1
    volumes: tuple[Volume, ...] | None = None
    """None: nothing was said of volumes."""
    envs: Mapping[str, str] = field(default_factory=dict)
    master: Resources
    ps: Resources
    worker: Resources
    master_pod_priority: str = ""
    ps_pod_priority: str = ""
    worker_pod_priority: WorkerPriority = field(default_factory=WorkerPriority)
    max_workers: int = 0
    """To how many workers `kubectl scale` may grow the job; 0: not above its number of workers."""
    cluster_spec: Mapping[str, Any] = field(default_factory=dict)
    etcd: str = ""
    """Client URLs of the etcd in which the master keeps its state; empty: the stack's."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Which cluster, and whether the job is sent there or written to a file."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""
    in_cluster: bool = True
    """Whether the service account of the pod that the command runs in may be used where there is no kubeconfig."""
    yaml: str = ""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a command line asks for."""

    args: JobArgs
    deployment: Deployment
    target: Target
