"""The Kubernetes objects of etcd: one member with its data on the shared file system, or three on their nodes' disks.

A member that is lost with its node starts again on another node that has none, with the same name. One of three gets
its data from the others. Two members on one node would be lost together, and with them the majority.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidewater.contract import labels
from workloads.etcd.in_pod import member
from workloads.manifests import (
    CONFINED,
    DATA_DIRECTORY,
    DATA_MOUNT,
    JOB_PODS,
    NON_ROOT,
    SCRATCH_MOUNT,
    SYSTEM_NODES,
    ZONE,
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
"""etcd's defaults (100 and 1000) are for fast local disks. A write to EFS takes milliseconds, sometimes many."""

PROGRAM = Path(member.__file__)
PROGRAM_DIRECTORY = "/program"
CONFIGURATION = f"{SCRATCH_MOUNT['mountPath']}/etcd.json"

LABELS = labels.component(labels.COMPONENT_ETCD, instance=NAME)


def endpoint(namespace: str) -> str:
    """Return the URL at which clients in the cluster reach etcd."""
    return f"http://{NAME}.{namespace}.svc:{CLIENT_PORT}"


def member_of(namespace: str, number: int) -> member.Member:
    """Return a member's name and addresses."""
    name = f"{NAME}-{number}"
    domain = f"{name}.{PEERS}.{namespace}.svc"
    return member.Member(name, f"http://{domain}:{PEER_PORT}", f"http://{domain}:{CLIENT_PORT}")


def options(namespace: str, members: int) -> dict[str, object]:
    """Return etcd's options, without those that `in_pod.member` decides. Kubernetes itself expands `$(POD_NAME)`."""
    domain = f"$(POD_NAME).{PEERS}.{namespace}.svc"
    return {
        # One member and three are different etcds, with different data: see `component`.
        "data-dir": f"{DATA_DIRECTORY}/etcd/{members}/$(POD_NAME)",
        "listen-client-urls": f"http://0.0.0.0:{CLIENT_PORT}",
        "advertise-client-urls": f"http://{domain}:{CLIENT_PORT}",
        "listen-peer-urls": f"http://0.0.0.0:{PEER_PORT}",
        "listen-metrics-urls": f"http://0.0.0.0:{METRICS_PORT}",
        "initial-advertise-peer-urls": f"http://{domain}:{PEER_PORT}",
        "heartbeat-interval": HEARTBEAT_MILLIS,
        "election-timeout": ELECTION_MILLIS,
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
        "logger": "zap",
    }


def program_manifest(namespace: str) -> Manifest:
    """Return the ConfigMap with the program that decides how a member starts."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(NAME, LABELS, namespace=namespace),
        "data": {PROGRAM.name: PROGRAM.read_text()},
    }


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


def stateful_set_manifest(
    namespace: str, *, members: int, image: str, python_image: str, priority_class: str
) -> Manifest:
    """Return the members. `python_image` runs what comes before etcd."""
    data = _data(members)
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
                        _spread_over(ZONE),
                    ],
                    "initContainers": [_before(namespace, members, python_image, data["name"])],
                    "containers": [_container(image, data["name"])],
                    "volumes": [data, empty_volume("scratch"), {"name": "program", "configMap": {"name": NAME}}],
                },
            },
        },
    }


def _data(members: int) -> Manifest:
    """Return the volume of a member's data.

    The two have different names: the preview of a replacement applies the new set to the old one, and one volume can't
    be a claim and a directory.
    """
    if members == 1:
        return data_volume(CLAIM)
    # Of three members, two have what is on the disk of a lost node. On the shared file system, a member of another node
    # would wait until NFS takes the lock on the data from the lost one.
    return empty_volume("member")


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


def _before(namespace: str, members: int, image: str, volume: str) -> Manifest:
    """Return the container that decides how the member starts."""
    others = [member_of(namespace, number) for number in range(members)]
    return {
        "name": "member",
        "image": image,
        "command": [
            *("python3", f"{PROGRAM_DIRECTORY}/{PROGRAM.name}", "--name=$(POD_NAME)", "--uid=$(POD_UID)"),
            f"--options={json.dumps(options(namespace, members))}",
            f"--config={CONFIGURATION}",
            *(f"--member={each.name},{each.peer},{each.client}" for each in others),
        ],
        "env": [field("POD_NAME", "metadata.name"), field("POD_UID", "metadata.uid")],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": CONFINED,
        "volumeMounts": [
            {**DATA_MOUNT, "name": volume},
            SCRATCH_MOUNT,
            {"name": "program", "mountPath": PROGRAM_DIRECTORY, "readOnly": True},
        ],
    }


def _container(image: str, volume: str) -> Manifest:
    def probe(path: str, **times: int) -> Manifest:
        return {"httpGet": {"path": path, "port": "client"}, **times}

    return {
        "name": NAME,
        "image": image,
        "command": ["etcd", f"--config-file={CONFIGURATION}"],
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
        "volumeMounts": [{**DATA_MOUNT, "name": volume}, SCRATCH_MOUNT],
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

    def rule(from_labels: dict[str, str], *ports: int) -> Manifest:
        return {
            "from": [{"podSelector": {"matchLabels": from_labels}}],
            "ports": [{"protocol": "TCP", "port": port} for port in ports],
        }

    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(NAME, LABELS, namespace=namespace),
        "spec": {
            "podSelector": {"matchLabels": LABELS},
            "policyTypes": ["Ingress"],
            "ingress": [rule(LABELS, PEER_PORT, CLIENT_PORT), rule(JOB_PODS, CLIENT_PORT)],
        },
    }
