"""etcd, in which the workers find each other: one member or three, with its data on the shared file system.

A member that is lost with its node starts again on another node that has none, with the same name and data. Two members
on one node would be lost together, and with them the majority.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from tidewater.contract import labels
from workloads import objects
from workloads.manifests import (
    CONFINED,
    DATA_DIRECTORY,
    DATA_MOUNT,
    JOB_PODS,
    NON_ROOT,
    SCRATCH_MOUNT,
    SYSTEM_NODES,
    Manifest,
    data_volume,
    empty_volume,
    field,
    metadata,
)
from workloads.storage import CLAIM

NAME = "etcd"
PEERS = "etcd-peers"
CLIENT_PORT = 2379
PEER_PORT = 2380
METRICS_PORT = 2381
"""A port of its own, so that who may read metrics need not reach the keys."""

HEARTBEAT_MILLIS = 500
ELECTION_MILLIS = 5000
"""etcd's defaults (100 and 1000) are for local disks. A write to EFS takes milliseconds, sometimes many."""

LABELS = labels.component(labels.COMPONENT_ETCD, instance=NAME)


def endpoint(namespace: str) -> str:
    """Return the URL at which clients in the cluster reach etcd."""
    return f"http://{NAME}.{namespace}.svc:{CLIENT_PORT}"


def arguments(namespace: str, members: int) -> list[str]:
    """Return etcd's command line. Kubernetes itself expands `$(POD_NAME)`: the image has no shell."""
    domain = f"{PEERS}.{namespace}.svc"
    cluster = ",".join(f"{NAME}-{n}=http://{NAME}-{n}.{domain}:{PEER_PORT}" for n in range(members))
    return [
        "--name=$(POD_NAME)",
        # etcd reads its members only on its first start, so another number of members is another etcd with other data.
        f"--data-dir={DATA_DIRECTORY}/etcd/{members}/$(POD_NAME)",
        f"--listen-client-urls=http://0.0.0.0:{CLIENT_PORT}",
        f"--advertise-client-urls=http://$(POD_NAME).{domain}:{CLIENT_PORT}",
        f"--listen-peer-urls=http://0.0.0.0:{PEER_PORT}",
        f"--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}",
        f"--initial-advertise-peer-urls=http://$(POD_NAME).{domain}:{PEER_PORT}",
        f"--initial-cluster={cluster}",
        "--initial-cluster-state=new",
        f"--initial-cluster-token={namespace}-{members}",
        f"--heartbeat-interval={HEARTBEAT_MILLIS}",
        f"--election-timeout={ELECTION_MILLIS}",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",
        "--logger=zap",
    ]


def peers_service_manifest(namespace: str) -> Manifest:
    """Return the service that gives each member a DNS name before it is ready: members become ready together."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(PEERS, LABELS, namespace=namespace),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": LABELS,
            "ports": [{"name": "peer", "port": PEER_PORT}, {"name": "client", "port": CLIENT_PORT}],
        },
    }


def client_service_manifest(namespace: str) -> Manifest:
    """Return the service through which clients reach any ready member."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(NAME, LABELS, namespace=namespace),
        "spec": {
            "type": "ClusterIP",
            "selector": LABELS,
            "ports": [{"name": "client", "port": CLIENT_PORT, "targetPort": "client"}],
        },
    }


def stateful_set_manifest(namespace: str, *, members: int, image: str, priority_class: str) -> Manifest:
    """Return the members."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(NAME, LABELS, namespace=namespace),
        "spec": {
            "serviceName": PEERS,
            "replicas": members,
            "podManagementPolicy": "Parallel",  # the first can't become ready without the second
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "automountServiceAccountToken": False,
                    "priorityClassName": priority_class,
                    "nodeSelector": SYSTEM_NODES,
                    "securityContext": NON_ROOT,
                    "terminationGracePeriodSeconds": 30,
                    "topologySpreadConstraints": [
                        # With fewer nodes than `minDomains` a member waits for a node; it never shares one.
                        {**_spread_over("kubernetes.io/hostname"), "minDomains": members},
                        _spread_over("topology.kubernetes.io/zone"),
                    ],
                    "containers": [_container(namespace, members, image)],
                    "volumes": [data_volume(CLAIM), empty_volume("scratch")],
                },
            },
        },
    }


def _spread_over(topology_key: str) -> Manifest:
    """Return the constraint that members are spread evenly over the nodes or zones that they may run on.

    https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/#spread-constraint-definition
    """
    return {
        "maxSkew": 1,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",  # a node that is drained or not ready doesn't count: no member waits for it
        "labelSelector": {"matchLabels": LABELS},
    }


def _container(namespace: str, members: int, image: str) -> Manifest:
    def probe(path: str, **times: int) -> Manifest:
        return {"httpGet": {"path": path, "port": "client"}, **times}

    return {
        "name": NAME,
        "image": image,
        "command": ["etcd", *arguments(namespace, members)],
        "env": [field("POD_NAME", "metadata.name")],
        "ports": [
            {"name": "client", "containerPort": CLIENT_PORT},
            {"name": "peer", "containerPort": PEER_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "readinessProbe": probe("/readyz", periodSeconds=1, timeoutSeconds=5, failureThreshold=3),
        "livenessProbe": probe(
            "/livez", initialDelaySeconds=30, periodSeconds=10, timeoutSeconds=5, failureThreshold=6
        ),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": CONFINED,
        "volumeMounts": [DATA_MOUNT, SCRATCH_MOUNT],
    }


def disruption_budget_manifest(namespace: str) -> Manifest:
    """Let a drain evict one member at a time; a single member may be evicted too, and starts on another node."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(NAME, LABELS, namespace=namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
    }


def network_policy_manifest(namespace: str) -> Manifest:
    """Let members reach each other, and the pods of jobs reach them as clients; deny the rest.

    What they reach themselves is in `network_policies`.
    """

    def rule(from_labels: dict[str, str], port: int) -> Manifest:
        return {"from": [{"podSelector": {"matchLabels": from_labels}}], "ports": [{"protocol": "TCP", "port": port}]}

    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(NAME, LABELS, namespace=namespace),
        "spec": {
            "podSelector": {"matchLabels": LABELS},
            "policyTypes": ["Ingress"],
            "ingress": [rule(LABELS, PEER_PORT), rule(JOB_PODS, CLIENT_PORT)],
        },
    }


@dataclass(frozen=True)
class EtcdArgs:
    """The training settings, which name the namespace, the image and the number of members; and their priority."""

    training: settings.Training
    priority_class: str
    mounts: pulumi.ResourceOptions
    """Of what mounts the file system."""


class Etcd(pulumi.ComponentResource):
    """The members and the services in front of them."""

    def __init__(self, name: str, args: EtcdArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Etcd", name, None, opts)
        namespace = args.training.namespace
        child = pulumi.ResourceOptions(parent=self)
        peers = objects.register(peers_service_manifest(namespace), opts=child)
        objects.register(network_policy_manifest(namespace), opts=child)
        objects.register(disruption_budget_manifest(namespace), opts=child)
        stateful_set = objects.register(
            stateful_set_manifest(
                namespace,
                members=args.training.etcd_members,
                image=args.training.images.etcd,
                priority_class=args.priority_class,
            ),
            opts=pulumi.ResourceOptions.merge(args.mounts, pulumi.ResourceOptions(parent=self, depends_on=[peers])),
        )
        # Pulumi waits until a Service has a ready pod.
        objects.register(
            client_service_manifest(namespace), opts=pulumi.ResourceOptions(parent=self, depends_on=[stateful_set])
        )
        self.register_outputs({"endpoint": endpoint(namespace)})
