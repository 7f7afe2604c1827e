"""The namespace, its priority classes, and the credentials with which nodes pull images for the pods of a namespace.

    made = pull_secret(namespace, training.pull_secret, opts)         # [] without credentials
    objects.register(with_credentials(manifest, training.pull_secret), opts=opts)

Kubernetes adds the secrets of a ServiceAccount to its pods, so people's jobs with the stack's account have them too.
https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#add-imagepullsecrets-to-a-service-account
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import pulumi

from tidewater.contract import labels
from tidewater.contract.pod_defaults import RESTRICTED_NAMESPACE
from workloads import objects
from workloads.manifests import Manifest, Text, metadata

PULL_SECRET = "tidewater-registry"
"""Name of the secret with the credentials of registries, in each namespace of the stack."""

PULL_SECRETS: list[Manifest] = [{"name": PULL_SECRET}]


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


def secret_manifest(namespace: str, configuration: Text) -> Manifest:
    """Return the secret; `configuration` is Docker's, in Base64."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(PULL_SECRET, {labels.NAME: labels.APPLICATION}, namespace=namespace),
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": configuration},
    }


def with_credentials(manifest: Manifest, configuration: str) -> Manifest:
    """Return a ServiceAccount, or pods without one of their own, that names the secret if there is one.

    Pods with an account get the secret by it. So credentials that are set later make no pod anew.
    """
    if not configuration:
        return manifest
    if manifest["kind"] == "ServiceAccount":
        return {**manifest, "imagePullSecrets": PULL_SECRETS}
    template = manifest.get("spec", {}).get("template")
    if template is None or "serviceAccountName" in template["spec"]:
        return manifest
    pod = {**template["spec"], "imagePullSecrets": PULL_SECRETS}
    return {**manifest, "spec": {**manifest["spec"], "template": {**template, "spec": pod}}}


def pull_secret(namespace: str, configuration: str, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Make the secret in a namespace, if there are credentials."""
    return [PullSecret(namespace, PullSecretArgs(configuration), opts)] if configuration else []


@dataclass(frozen=True)
class PullSecretArgs:
    """Docker's configuration with the credentials, as JSON."""

    configuration: str = field(repr=False)


class PullSecret(pulumi.ComponentResource):
    """The secret, in the namespace that the component is named after."""

    def __init__(self, name: str, args: PullSecretArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:PullSecret", name, None, opts)
        encoded = pulumi.Output.secret(base64.b64encode(args.configuration.encode()).decode())
        objects.register(secret_manifest(name, encoded), opts=pulumi.ResourceOptions(parent=self))
        self.register_outputs({})


@dataclass(frozen=True)
class NamespaceArgs:
    """The priority classes to make, and Docker's configuration with the credentials of registries."""

    priorities: PriorityClasses
    pull_secret: str = field(default="", repr=False)


class Namespace(pulumi.ComponentResource):
    """The namespace, and the objects that belong to the cluster as a whole."""

    priorities: PriorityClasses
    space: pulumi.CustomResource
    """The namespace itself."""

    def __init__(self, name: str, args: NamespaceArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Namespace", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.space = objects.register(namespace_manifest(name), opts=child)
        pull_secret(name, args.pull_secret, pulumi.ResourceOptions(parent=self, depends_on=[self.space]))
        self.priorities = args.priorities
        for class_name, wanted in self.priorities.values().items():
            objects.register(priority_class_manifest(class_name, wanted), opts=child)
        self.register_outputs({})
