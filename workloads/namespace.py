"""The namespace and its priority classes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from tidewater.contract import labels
from tidewater.contract.pod_defaults import RESTRICTED_NAMESPACE
from workloads import objects
from workloads.manifests import Manifest, metadata


@dataclass(frozen=True)
class PriorityClass:
    """A priority class. A pod may displace pods of lower classes if `preempts`; otherwise it waits for room."""

    value: int
    description: str
    preempts: bool = True


@dataclass(frozen=True)
class PriorityClasses:
    """Names of the stack's priority classes. They belong to no namespace, so their names contain it."""

    namespace: str

    @property
    def etcd(self) -> str:
        """For etcd's members."""
        return f"{self.namespace}-etcd"

    @property
    def controller(self) -> str:
        """For the ElasticJob controller."""
        return f"{self.namespace}-controller"

    @property
    def core(self) -> str:
        """For workers up to the minimum."""
        return f"{self.namespace}-core-workers"

    @property
    def surge(self) -> str:
        """For workers above the minimum."""
        return f"{self.namespace}-surge-workers"

    def values(self) -> dict[str, PriorityClass]:
        """Return the classes by name.

        A core worker that is made again waits for room like any other: the workers that it could displace are those
        of its own job, which trains on with them. They are displaced last, and placed first, all the same.
        """
        return {
            self.etcd: PriorityClass(1_000_000, "The workers' rendezvous: training stops without it"),
            self.controller: PriorityClass(1_000_000, "The controller: without it no worker is replaced or added"),
            self.core: PriorityClass(10_000, "Workers up to the job's minimum", preempts=False),
            self.surge: PriorityClass(1_000, "Workers above the job's minimum, the first to go"),
        }


def namespace_manifest(name: str) -> Manifest:
    """Return a namespace that accepts only pods without privileges."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(name, {labels.NAME: labels.APPLICATION, **RESTRICTED_NAMESPACE}),
    }


def priority_class_manifest(name: str, wanted: PriorityClass) -> Manifest:
    """Return one priority class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata(name, {labels.NAME: labels.APPLICATION}),
        "value": wanted.value,
        "description": wanted.description,
        "preemptionPolicy": "PreemptLowerPriority" if wanted.preempts else "Never",
    }


@dataclass(frozen=True)
class NamespaceArgs:
    """The priority classes to make."""

    priorities: PriorityClasses


class Namespace(pulumi.ComponentResource):
    """The namespace, and the objects that belong to the cluster as a whole."""

    priorities: PriorityClasses
    space: pulumi.CustomResource
    """The namespace itself."""

    def __init__(self, name: str, args: NamespaceArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Namespace", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.space = objects.register(namespace_manifest(name), opts=child)
        self.priorities = args.priorities
        for class_name, wanted in self.priorities.values().items():
            objects.register(priority_class_manifest(class_name, wanted), opts=child)
        self.register_outputs({})
