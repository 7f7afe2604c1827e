"""A stack as its leftovers know it, and the test for what belongs to it. Nothing here talks to AWS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

Clients = Callable[[str], Any]
"""A boto3 client for the name of a service, in the stack's region."""


@dataclass(frozen=True)
class Stack:
    """The project and the stack, as in the tags of every resource that the program makes."""

    project: str
    stack: str

    @property
    def name(self) -> str:
        """The name of the cluster, with which all other names begin."""
        return f"{self.project}-{self.stack}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags that the program gives to all resources of this stack and of no other."""
        return {"Project": self.project, "Stack": self.stack}

    @property
    def cluster_tags(self) -> dict[str, str]:
        """The tags that AWS and the cluster's programs put on what they make for the cluster; one is enough.

        kubernetes.io/cluster: EKS, Kubernetes' AWS code, vpc-cni (amazon-vpc-cni-k8s#2854), Karpenter; the stack's
        own subnets have it with the value `shared`. cluster.k8s.amazonaws.com: vpc-cni (amazon-vpc-cni-k8s#1482).
        elbv2.k8s.aws: https://kubernetes-sigs.github.io/aws-load-balancer-controller/. eks:eks-cluster-name: Karpenter
        (https://karpenter.sh/v1.14/reference/cloudformation/). aws:eks: the cluster's own security group.
        """
        return {
            f"kubernetes.io/cluster/{self.name}": "owned",
            "cluster.k8s.amazonaws.com/name": self.name,
            "elbv2.k8s.aws/cluster": self.name,
            "eks:eks-cluster-name": self.name,
            "aws:eks:cluster-name": self.name,
        }

    def owns(self, tags: Mapping[str, str]) -> bool:
        """Return whether something with these tags is the stack's, or its cluster's."""
        return self.tags.items() <= tags.items() or bool(self.cluster_tags.items() & tags.items())


@dataclass(frozen=True)
class Leftover:
    """Something that is left: its kind, the id that deletes it, and what a person should know about it."""

    kind: str
    id: str
    about: str = ""


@contextmanager
def nothing_around(clients: Clients, ids: Sequence[str]) -> Iterator[None]:
    """Do nothing before and after a kind's deletions."""
    yield


@dataclass(frozen=True)
class Kind:
    """One kind of thing: how to find those of a stack, and how to delete one."""

    label: str
    find: Callable[[Clients, Stack], Iterable[tuple[str, str]]]
    """Yields ids, each with what a person should know."""
    delete: Callable[[Clients, str], object]
    around: Callable[[Clients, Sequence[str]], AbstractContextManager[None]] = nothing_around
    """Entered before the first deletion of this kind, left after the last one."""


def tags_of(given: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Return AWS's list of tags as a mapping."""
    return {tag["Key"]: tag["Value"] for tag in given or ()}


def pages(client: Any, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
    """Yield the items under `key` of all pages that an operation answers."""
    for page in client.get_paginator(operation).paginate(**arguments):
        yield from page.get(key, ())
