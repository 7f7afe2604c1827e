"""What a stack tells the tools that submit jobs to it: a ConfigMap in its training namespace, with names only.

    Facts.of(config_map["data"]).bucket        # where a job's code goes, so that its pods can fetch it

The Pulumi program writes it (`workloads/exports.py`). TorchX's plug-in and ElasticDL's client read it, so that people
don't repeat outputs of the stack as options. It holds no secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from tidewater.contract import labels
from tidewater.contract.pod_defaults import lost_node_tolerations

CONFIG_MAP = "tidewater"
"""The ConfigMap's name."""

DATA_DIRECTORY = "/data"
"""Where jobs have the shared file system."""

LUSTRE_DIRECTORY = "/lustre"
"""Where jobs have the FSx for Lustre file system that the stack names, if it names one."""

LOGS = "logs"
"""Name of the Deployment that keeps the logs of the namespace's jobs, and of all that belongs to it."""

LOGS_DIRECTORY = f"{DATA_DIRECTORY}/logs"
"""Where they are, in the pods that mount the shared files."""

LOGS_READER = ("python3", "/program/read.py", f"--directory={LOGS_DIRECTORY}")
"""What prints them, in a pod that is made from that Deployment's template."""

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """Names of the stack's parts. In the ConfigMap a field is `camelCase`.

    Attributes:
        bucket: the stack's bucket; its folder `code/` can be read by pods of the service account.
        service_account: of the namespace, with the AWS role of the training pods.
        fetch_image: image with the AWS CLI, which downloads code.
        image: the trainer's image, with PyTorch.
        etcd: `host:port` of the etcd in which workers meet.
        data_claim: PersistentVolumeClaim of the shared file system.
        posix_id: user and group that own the files on it, as which the pods of the namespace run.
        lustre_claim: PersistentVolumeClaim of the FSx for Lustre file system; empty without one.
        http_proxy: URL of the HTTP proxy through which pods reach the internet; empty without one.
        no_proxy: what they reach without it, with commas between.
    """

    bucket: str
    service_account: str
    fetch_image: str
    image: str
    etcd: str
    data_claim: str
    posix_id: str
    lustre_claim: str = ""
    http_proxy: str = ""
    no_proxy: str = ""

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Facts:
        """Return the facts in the data of the ConfigMap.

        Raises:
            KeyError: a fact is absent: the ConfigMap is of another version of the stack.
        """
        known = [each.name for each in fields(cls) if each.default is MISSING or _camel(each.name) in data]
        return cls(**{name: data[_camel(name)] for name in known})

    @property
    def data(self) -> dict[str, Any]:
        """Return the data of the ConfigMap, without facts that have their defaults."""
        found = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {_camel(name): value for name, (value, default) in found.items() if value != default}

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that jobs' containers need to reach the internet."""
        return proxy_variables(self.http_proxy, self.no_proxy)

    @property
    def claims(self) -> dict[str, str]:
        """Return the PersistentVolumeClaims that jobs mount, by their directories in the pods."""
        return {DATA_DIRECTORY: self.data_claim} | ({LUSTRE_DIRECTORY: self.lustre_claim} if self.lustre_claim else {})


def proxy_variables(url: str, direct: str) -> dict[str, str]:
    """Return the variables with which programs find the HTTP proxy at `url`; none if that is empty.

    curl reads http_proxy in small letters only, and Python prefers these; other programs may read capital ones only.

    Args:
        direct: names, networks and addresses that are reached without it, with commas between.
    """
    found = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": direct} if url else {}
    return found | {name.lower(): value for name, value in found.items()}


WORKER_NODES: Mapping[str, str] = {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
"""`nodeSelector` of pods that train: the stack's worker nodes."""


def tolerations() -> list[Manifest]:
    """Return the tolerations of pods on the stack's worker nodes, which leave a lost node soon."""
    own: Manifest = {"key": labels.TAINT_WORKER, "operator": "Exists", "effect": "NoSchedule"}
    return [own, *lost_node_tolerations()]


def non_root(posix_id: int) -> Manifest:
    """Return the `securityContext` of a pod in the training namespace, which accepts only pods without privileges."""
    return {
        "runAsNonRoot": True,
        "runAsUser": posix_id,
        "runAsGroup": posix_id,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
